"""What the environment says, and that a key in it changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal._environment import found_keys, journal_path, providers_from, wants_telemetry
from shoal.errors import ConfigInvalid

KEYS = {"OPENAI_API_KEY": "sk-a-secret", "ANTHROPIC_API_KEY": "sk-another"}


@pytest.mark.parametrize("environ", [{}, {"SHOAL_PROVIDER": ""}, {"SHOAL_PROVIDER": " offline "}, KEYS])
def test_the_offline_provider_serves_unless_another_is_named(environ: dict[str, str]):
    assert [provider.name for provider in providers_from(environ)] == ["offline"]


def test_a_compatible_server_is_had_with_its_url_model_and_key():
    environ = {"SHOAL_PROVIDER": "compatible", "SHOAL_BASE_URL": "http://127.0.0.1:1/v1", "SHOAL_MODEL": "m"}
    [provider] = providers_from({**environ, "SHOAL_API_KEY": "sk-a-secret"})
    assert (provider.name, provider.default_model) == ("compatible", "m")
    assert "sk-a-secret" not in repr(provider)


def test_a_compatible_server_needs_no_model_and_no_key():
    environ = {"SHOAL_PROVIDER": "compatible", "SHOAL_BASE_URL": "http://127.0.0.1:1/v1"}
    assert providers_from(environ)[0].default_model is None


def test_a_compatible_server_without_a_url_says_which_variable_to_set():
    with pytest.raises(ConfigInvalid, match="`SHOAL_BASE_URL` is not set"):
        providers_from({"SHOAL_PROVIDER": "compatible"})


def test_a_provider_that_nobody_has_is_refused_with_those_there_are():
    with pytest.raises(ConfigInvalid, match=r"'openia'; set it to one or more of `offline`, `anthropic`, `openai`"):
        providers_from({"SHOAL_PROVIDER": "offline, openia"})


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("openai-chat", "OPENAI_API_KEY"),
        ("codex", "CODEX_ACCESS_TOKEN"),
        ("google", "GEMINI_API_KEY"),
        ("google", "GOOGLE_API_KEY"),
    ],
)
def test_a_vendor_is_had_by_its_name_with_its_own_key(name: str, variable: str):
    [provider] = providers_from({"SHOAL_PROVIDER": name, variable: "sk-a-secret", "SHOAL_MODEL": "m"})
    assert (provider.name, provider.default_model) == (name, "m")
    with pytest.raises(ConfigInvalid, match=f"names '{name}' and its key is not set.*`{variable}`"):
        providers_from({"SHOAL_PROVIDER": name})


def test_one_key_and_one_address_are_meant_for_the_one_provider_there_is():
    environ = {"SHOAL_PROVIDER": "anthropic", "SHOAL_API_KEY": "k", "SHOAL_BASE_URL": "http://127.0.0.1:1"}
    assert "http://127.0.0.1:1" in repr(providers_from(environ)[0])


def test_several_providers_stand_in_their_order_and_the_first_has_the_model():
    environ = {"SHOAL_PROVIDER": "anthropic,compatible", "SHOAL_BASE_URL": "http://127.0.0.1:1/v1", "SHOAL_MODEL": "m"}
    providers = providers_from({**environ, "ANTHROPIC_API_KEY": "k", "SHOAL_SERVER": "llama.cpp"})
    assert [(provider.name, provider.default_model) for provider in providers] == [
        ("anthropic", "m"),
        ("compatible", None),
    ]
    assert "api.anthropic.com" in repr(providers[0])
    assert "llama.cpp" in repr(providers[1])


def test_what_the_settings_say_of_a_model_holds_for_every_provider(tmp_path: Path):
    (tmp_path / "shoal").mkdir()
    (tmp_path / "shoal" / "shoal.toml").write_text('[models."claude-opus-5-5"]\ncontext = 5000\n')
    environ = {"SHOAL_PROVIDER": "anthropic", "ANTHROPIC_API_KEY": "k", "XDG_CONFIG_HOME": str(tmp_path)}
    assert providers_from(environ)[0].profile("claude-opus-5-5").window_tokens == 5000


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOAL_PROVIDER", "nobody")
    monkeypatch.setenv("SHOAL_JOURNAL", "/srv/runs.db")
    with pytest.raises(ConfigInvalid):
        providers_from()
    assert found_keys() == ()
    assert journal_path() == Path("/srv/runs.db")


def test_a_key_that_is_set_is_found_with_the_way_to_use_it_and_without_its_value():
    found = found_keys(KEYS)
    assert [key.variable for key in found] == ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]
    assert found[1].hint == "SHOAL_PROVIDER=openai SHOAL_MODEL=<model>"
    assert "sk-" not in str(found)


def test_a_key_for_another_server_is_found_with_its_address():
    [found] = found_keys({"DEEPSEEK_API_KEY": "sk-a-secret"})
    assert found.hint == (
        "SHOAL_PROVIDER=compatible SHOAL_BASE_URL=https://api.deepseek.com SHOAL_SERVER=deepseek "
        "SHOAL_API_KEY=$DEEPSEEK_API_KEY SHOAL_MODEL=<model>"
    )


def test_no_key_is_mentioned_where_a_provider_was_asked_for():
    assert found_keys({**KEYS, "SHOAL_PROVIDER": "offline"}) == ()


def test_the_journal_lies_in_the_state_folder():
    assert journal_path({"XDG_STATE_HOME": "/state"}) == Path("/state/shoal/runs.db")


@pytest.mark.parametrize("environ", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_the_state_folder_is_the_users_where_none_is_named(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert journal_path(environ) == Path("/home/somebody/.local/state/shoal/runs.db")


def test_the_journal_is_where_its_variable_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert journal_path({"SHOAL_JOURNAL": "~/runs.db", "XDG_STATE_HOME": "/state"}) == Path("/home/somebody/runs.db")


def test_a_user_without_a_home_is_told_what_to_set():
    with pytest.raises(ConfigInvalid, match="`SHOAL_JOURNAL`"):
        journal_path({"SHOAL_JOURNAL": "~nobody-of-that-name/runs.db"})


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_receiver_asks_for_spans(name: str):
    assert wants_telemetry({name: "http://127.0.0.1:4318"})


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_a_receiver_that_is_switched_off_asks_for_nothing(off: dict[str, str]):
    assert not wants_telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", **off})


def test_nothing_asks_for_spans_by_itself():
    assert not wants_telemetry({})
