"""`shoal run` with each vendor that the environment may name, and with one behind the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import Shell

from shoal.testing import wire

pytestmark = pytest.mark.sockets

PLAIN = '[agent]\nname = "plain"\n[stages.answer]\nsystem_prompt = "Answer."\n'
KEY = "sk-of-the-loopback"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "blueprint.toml").write_text(PLAIN)
    return tmp_path / "plain"


@pytest.mark.parametrize(
    ("name", "model", "path"),
    [
        ("anthropic", "claude-opus-4-8", ""),
        ("openai", "gpt-6.1-sol", "/v1"),
        ("openai-chat", "gpt-5.4", "/v1"),
        ("codex", "gpt-6.1-sol", "/backend-api/codex"),
        ("google", "gemini-4-argon", "/v1beta"),
    ],
)
def test_a_run_is_served_by_the_vendor_that_is_named(
    shell: Shell, plain: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str, path: str
):
    with wire.serve_in_thread(wire.Script(last="It is 42."), wire.Settings(keys=frozenset({KEY}))) as server:
        for variable, value in {
            "PROVIDER": name,
            "MODEL": model,
            "API_KEY": KEY,
            "BASE_URL": server.base_url + path,
        }.items():
            monkeypatch.setenv(f"SHOAL_{variable}", value)
        said = shell("run", plain, "--task", "What is it?", "--json")
    assert (said.status, said.json["status"], said.json["output"]) == (0, "complete", "It is 42.")
    assert said.json["cost_usd"] is not None
    assert server.violations == ()


def test_a_wrong_key_pauses_the_run_with_what_to_do(shell: Shell, plain: Path, monkeypatch: pytest.MonkeyPatch):
    with wire.serve_in_thread(wire.Script(), wire.Settings(keys=frozenset({KEY}))) as server:
        monkeypatch.setenv("SHOAL_PROVIDER", "anthropic")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-somebody-else")
        monkeypatch.setenv("SHOAL_BASE_URL", server.base_url)
        monkeypatch.setenv("SHOAL_MODEL", "claude-opus-4-8")
        said = shell("run", plain, "--json")
    assert said.status == 3
    assert "Set a valid API key for this provider." in said.err
    assert "sk-of-somebody-else" not in said.out + said.err


def test_what_a_vendor_says_cannot_speak_to_the_terminal(shell: Shell, plain: Path, monkeypatch: pytest.MonkeyPatch):
    rude = wire.Failure(400, "invalid_request_error", "no \x1b]0;owned\x07 and\u202e no")
    with wire.serve_in_thread(wire.Script(), wire.Settings(faults=[rude])) as server:
        monkeypatch.setenv("SHOAL_PROVIDER", "compatible")
        monkeypatch.setenv("SHOAL_BASE_URL", server.openai_url)
        monkeypatch.setenv("SHOAL_MODEL", "local")
        said = shell("run", plain)
    assert said.status == 1
    assert "no \\x1b]0;owned\\x07 and\\u202e no" in said.err
    assert not set("\x1b\x07\u202e") & set(said.out + said.err)


def test_what_is_refused_cannot_speak_to_the_terminal(shell: Shell):
    said = shell("result", "\x1b]0;owned\x07")
    assert "\x1b" not in said.err
