"""`shoal doctor`: what is there, what is missing, and what to do about it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from front_shell import Said, Shell

from shoal.testing import wire

KEY = "sk-of-the-doctors-tests"


def found(said: Said) -> dict[str, Any]:
    return {check["check"]: check for check in said.json["checks"]}


def statuses(said: Said) -> dict[str, str]:
    return {check["check"]: check["status"] for check in said.json["checks"]}


def test_a_fresh_machine_is_sound(shell: Shell):
    said = shell("doctor", "--json")
    assert (said.status, said.json["ok"]) == (0, True)
    assert list(statuses(said)) == [
        "settings", "models", "provider offline", "tiktoken:o200k_base", "tiktoken:cl100k_base", "journal", "telemetry",
    ]  # fmt: skip
    assert found(said)["journal"]["said"].endswith("not made yet")


def test_where_all_is_well_there_is_nothing_to_do(shell: Shell):
    assert shell("doctor").out.splitlines()[-1].split()[:2] == ["telemetry", "ok"]


def test_people_get_a_table_and_what_to_do(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = shell("doctor")
    assert said.out.splitlines()[0].split() == ["what", "status", "found"]
    assert said.out.splitlines()[-1].startswith("key OPENAI_API_KEY: To use it: `SHOAL_PROVIDER=openai")
    assert KEY not in said.out + said.err


def test_settings_are_named_with_the_model_that_is_preferred(shell: Shell):
    settings = Path("../config/shoal/shoal.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text('[providers]\ndefault_model = "offline:mine"\n')
    assert found(shell("doctor", "--json"))["settings"]["said"].endswith("models: none; default model: offline:mine")


def test_settings_are_named_with_the_models_that_they_speak_of(shell: Shell):
    Path("shoal.toml").write_text("[models.mine]\ncontext = 9000\n")
    assert found(shell("doctor", "--json"))["settings"]["said"].endswith("shoal.toml; models: mine")


def test_servers_and_memory_of_the_settings_are_named(shell: Shell, tmp_path: Path):
    settings = tmp_path / "config" / "shoal" / "shoal.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[mcp.time]\ncommand = "x"\n[memory]\nfolder = "/notes"\n')
    assert found(shell("doctor", "--json"))["settings"]["said"].endswith("MCP servers: time; memory: /notes")


def test_a_receiver_of_the_settings_is_looked_for(shell: Shell, tmp_path: Path):
    settings = tmp_path / "config" / "shoal" / "shoal.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[telemetry]\nendpoint = "http://127.0.0.1:1"\n')
    assert "127.0.0.1:1 does not answer" in found(shell("doctor", "--json"))["telemetry"]["said"]
    settings.write_text('[telemetry]\nendpont = "http://127.0.0.1:1"\n')
    assert statuses(shell("doctor", "--json"))["telemetry"] == "failed"


def test_settings_of_no_use_fail(shell: Shell):
    Path("shoal.toml").write_text("[models.mine]\ncontxt = 9000\n")
    said = shell("doctor", "--json")
    assert said.status == 1
    assert "did you mean `context`" in found(said)["settings"]["said"]
    assert statuses(said)["providers"] == "failed"


def asked(shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, url: str, key: str = KEY) -> Said:
    for variable, value in {"PROVIDER": name, "API_KEY": key, "BASE_URL": url, "MODEL": "m"}.items():
        monkeypatch.setenv(f"SHOAL_{variable}", value)
    return shell("doctor", "--json")


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("name", "path"),
    [("anthropic", ""), ("openai", "/v1"), ("openai-chat", "/v1"), ("google", "/v1beta"), ("compatible", "/v1")],
)
def test_a_provider_that_answers_is_said_to(shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, path: str):
    with wire.serve_in_thread(wire.Script(), wire.Settings(keys=frozenset({KEY}))) as server:
        good = asked(shell, monkeypatch, name, server.base_url + path)
        bad = asked(shell, monkeypatch, name, server.base_url + path, "sk-of-somebody-else")
    said = "answers; m: 8,192 tokens (the default for an unknown model), no price"
    assert found(good)[f"provider {name}"]["said"] == said
    assert (bad.status, found(bad)[f"provider {name}"]["remedy"]) == (1, "Set a valid API key for this provider.")
    assert server.journal.replies == ()


def test_what_is_known_of_the_default_model_is_said_and_by_whom(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    Path("shoal.toml").write_text('[models.m]\ncontext = 9000\nprice = { input = "1", output = "2.5" }\n')
    said = found(asked(shell, monkeypatch, "codex", "http://127.0.0.1:1"))["provider codex"]["said"]
    assert "m: 9,000 tokens (" in said
    assert "shoal.toml), USD 1 in and 2.5 out a million (" in said


def test_who_knows_models_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    assert found(shell("doctor", "--json"))["models"]["said"].startswith("`models.toml` (")
    monkeypatch.setattr("shoal.cli._doctor.list_source", lambda: "a list")
    assert found(shell("doctor", "--json"))["models"]["said"].startswith("windows and prices: a list; else: `models.")


def test_a_list_of_prices_that_is_broken_is_a_note_with_what_to_do(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.cli._doctor.list_trouble", lambda: "ValueError: half a file")
    check = found(shell("doctor", "--json"))["models"]
    assert check["status"] == "note"
    assert "(ValueError: half a file); `models.toml`" in check["said"]
    assert "again" in check["remedy"]


def test_what_cannot_be_asked_for_free_is_not_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    said = asked(shell, monkeypatch, "codex", "http://127.0.0.1:1")
    assert statuses(said)["provider codex"] == "note"


@pytest.mark.sockets
def test_a_server_that_is_not_there_fails(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    said = asked(shell, monkeypatch, "compatible", url)
    assert said.status == 1
    assert found(said)["provider compatible"]["remedy"].startswith("Check the address")


@pytest.mark.sockets
def test_a_server_that_never_answers_is_not_waited_for(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.cli._doctor.ASK_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = asked(shell, monkeypatch, "compatible", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    assert "no answer within" in found(said)["provider compatible"]["said"]


def test_a_vocabulary_that_is_not_here_is_no_failure(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    from shoal.providers._tokens import ESTIMATOR

    monkeypatch.setattr("shoal.cli._doctor.counter", lambda _name: ESTIMATOR)
    said = shell("doctor", "--json")
    assert (said.status, statuses(said)["tiktoken:o200k_base"]) == (0, "note")
    assert "nothing is downloaded" in found(said)["tiktoken:o200k_base"]["remedy"]


def test_the_journal_is_counted_and_measured(shell: Shell, answers: Path):
    shell("run", str(answers), "--task", "x")
    assert ": 1 runs, 0." in found(shell("doctor", "--json"))["journal"]["said"]


def test_a_large_journal_is_worth_a_note(shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.cli._doctor.LARGE_BYTES", 1)
    shell("run", str(answers), "--task", "x")
    assert found(shell("doctor", "--json"))["journal"]["remedy"] == "`shoal prune` deletes what is old."


def test_a_file_that_is_no_journal_fails(shell: Shell):
    Path("no.db").write_text("nothing of the kind" * 100)
    said = shell("doctor", "--journal", "no.db", "--json")
    assert (said.status, statuses(said)["journal"]) == (1, "failed")


def test_a_journal_that_cannot_be_written_fails(shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch):
    shell("run", str(answers), "--task", "x")
    monkeypatch.setattr("shoal.cli._doctor.os.access", lambda *_: False)
    assert "cannot be written" in found(shell("doctor", "--json"))["journal"]["said"]


@pytest.mark.sockets
def test_a_receiver_of_spans_is_tried(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        port = receiver.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://me:a-password@127.0.0.1:{port}")
        there = found(shell("doctor", "--json"))["telemetry"]
    gone = found(shell("doctor", "--json"))["telemetry"]
    assert (there["status"], there["said"]) == ("ok", f"127.0.0.1:{port} takes connections")
    assert (gone["status"], "a-password" in gone["said"]) == ("failed", False)
