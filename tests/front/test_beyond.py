"""MCP servers, memory and receivers of spans of the settings; who serves, by the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal._beyond import expanded, exporter_settings, memory_from, receiver_from, servers_from
from shoal._environment import providers_from, wants_telemetry
from shoal._serving import default_model_from, providers_said
from shoal.errors import ConfigInvalid
from shoal.providers import compatible, offline

HOME = "home/shoal/shoal.toml"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "home" / "shoal").mkdir(parents=True)
    return tmp_path


def said(what: Any, here: Path, own: str = "", local: str = "", **variables: str) -> Any:
    (here / HOME).write_text(own)
    (here / "shoal.toml").write_text(local)
    return what({"XDG_CONFIG_HOME": str(here / "home"), **variables}, here)


# --- MCP servers


def test_a_program_is_named_as_people_are_used_to(here: Path):
    own = '[mcp.time]\ncommand = "uvx"\nargs = ["mcp-server-time", "--utc"]\nfolder = "~"\ndeferred = true\n'
    [server] = said(servers_from, here, own)
    assert (server.name, server.command, server.idle_s) == ("time", ("uvx", "mcp-server-time", "--utc"), 60)
    assert server.folder == Path.home()
    assert server.deferred


def test_a_command_may_be_one_list(here: Path):
    [server] = said(servers_from, here, '[mcp.time]\ncommand = ["a", "b"]\n')
    assert server.command == ("a", "b")


def test_a_secret_is_looked_up_when_the_server_is_reached(here: Path):
    own = '[mcp.wiki]\nurl = "https://wiki.example/mcp"\nheaders = { Authorization = "Bearer ${WIKI}", "X" = "r" }\n'
    [server] = said(servers_from, here, own, WIKI="s3cret")
    assert server.url == "https://wiki.example/mcp"
    assert callable(server.headers)
    assert server.headers() == {"Authorization": "Bearer s3cret", "X": "r"}
    assert "s3cret" not in repr(server)


def test_a_variable_that_is_not_set_is_named_when_it_is_needed(here: Path):
    [server] = said(servers_from, here, '[mcp.a]\ncommand = "a"\nenv = { TOKEN = "${NOPE}", LEVEL = "debug" }\n')
    assert callable(server.env)
    with pytest.raises(ConfigInvalid, match="the variable `NOPE` is not set"):
        server.env()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('command = "a"\nenv = { API_KEY = "sk-123" }', "holds the secret `API_KEY`; write `\\${NAME}`"),
        ('url = "https://x"\nheaders = { Authorization = "Bearer x" }', "holds the secret `Authorization`"),
        ('command = "a"\nurl = "https://x"', "needs either a `command` or a `url`"),
        ("", "needs either a `command` or a `url`"),
        ('comand = "a"', "unknown field `comand`"),
        ('command = "a"\ntimeout_s = 0', "`timeout_s` of .* is 0.0; give seconds, more than 0"),
    ],
)
def test_a_server_that_is_none_is_refused_with_its_file(here: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why) as caught:
        said(servers_from, here, f"[mcp.x]\n{text}\n")
    assert "shoal.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("what", "table"),
    [
        (servers_from, "mcp.x"),
        (memory_from, "memory"),
        (receiver_from, "telemetry"),
        (providers_said, "providers.x"),
    ],
)
def test_a_working_directory_has_no_say(here: Path, what: Any, table: str):
    with pytest.raises(ConfigInvalid, match=r"lies in the working directory and has .*; move it to .*home/shoal"):
        said(what, here, local=f"[{table}]\nx = 1\n")


@pytest.mark.parametrize(
    ("what", "table"), [(servers_from, "mcp"), (memory_from, "memory"), (receiver_from, "telemetry")]
)
def test_what_is_no_table_is_refused(here: Path, what: Any, table: str):
    with pytest.raises(ConfigInvalid, match="is no table"):
        said(what, here, f"{table} = 3\n")


def test_no_home_folder_means_no_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "expanduser", _homeless)
    assert servers_from({}, tmp_path) == ()
    assert providers_said({}, tmp_path).use == ()


def _homeless(path: Path) -> Path:
    raise RuntimeError("no home")


def test_text_without_variables_stays_as_it_is():
    assert expanded({"a": "$b {c} ${1}"}, {}) == {"a": "$b {c} ${1}"}


# --- memory


def test_a_memory_is_a_folder(here: Path):
    assert said(memory_from, here) is None
    assert said(memory_from, here, '[memory]\nfolder = "~/notes"\n') == Path.home() / "notes"


def test_a_memory_without_a_folder_is_refused(here: Path):
    with pytest.raises(ConfigInvalid, match=r"`\[memory\]` in .* is of no use"):
        said(memory_from, here, '[memory]\nfoldr = "~/notes"\n')


# --- receivers


RECEIVER = """[telemetry]
endpoint = "http://127.0.0.1:4318"
headers = { Authorization = "${OTLP}" }
service_name = "mine"
timeout_s = 3.0
"""


def test_spans_go_where_the_settings_say_unless_the_environment_says_something_else(here: Path):
    receiver = said(receiver_from, here, RECEIVER)
    given = exporter_settings(receiver, {"OTLP": "x", "OTEL_SERVICE_NAME": "other"})
    assert given == {"endpoint": "http://127.0.0.1:4318", "headers": {"Authorization": "x"}, "timeout_s": 3.0}


def test_settings_that_name_a_receiver_ask_for_spans(here: Path):
    def wants(environ: Any, _workdir: Path) -> bool:
        return wants_telemetry(environ)

    assert said(wants, here, RECEIVER)
    assert not said(wants, here, RECEIVER, OTEL_SDK_DISABLED="true")
    assert not said(wants, here)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[telemetry]\nservice_name = "x"\n', "is of no use"),
        ('[telemetry]\nendpoint = "http://x"\nheaders = { "api-key" = "x" }\n', "holds the secret `api-key`"),
    ],
)
def test_a_receiver_that_is_none_is_refused(here: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why):
        said(receiver_from, here, text)


@pytest.mark.anyio
async def test_a_swarm_that_sends_spans_sends_them_there(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / HOME).write_text('[telemetry]\nendpoint = "http://127.0.0.1:1"\ntimeout_s = 0.1\nservice_name = "mine"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "home"))
    seen: dict[str, Any] = {}

    def otlp(**given: Any) -> shoal.observability.Telemetry:
        seen.update(given)
        raise ConfigInvalid("seen")

    monkeypatch.setattr("shoal._swarm.otlp", otlp)
    with pytest.raises(ConfigInvalid, match="seen"):
        async with shoal.Swarm(telemetry="otlp"):
            pass
    assert (seen["endpoint"], seen["service_name"]) == ("http://127.0.0.1:1", "mine")


# --- who serves


def serving(here: Path, own: str, **variables: str) -> list[tuple[str, str | None]]:
    def names(environ: Any, _workdir: Path) -> list[tuple[str, str | None]]:
        return [(provider.name, provider.default_model) for provider in providers_from(environ)]

    found: list[tuple[str, str | None]] = said(names, here, own, **variables)
    return found


LAB = '[providers]\nuse = ["lab", "openai"]\n[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "qwen3"\n'


def test_the_settings_name_who_serves_and_servers_of_one_s_own(here: Path):
    own = f'{LAB}[providers.openai]\nkey_env = "WORK_KEY"\nmodel = "gpt-5.4"\n'
    assert serving(here, own, WORK_KEY="x") == [("lab", "qwen3"), ("openai", "gpt-5.4")]


def test_the_settings_say_which_model_is_preferred_where_its_provider_serves(here: Path):
    def preferred(environ: Any, workdir: Path) -> tuple[str | None, str | None]:
        served = (compatible("http://127.0.0.1:9/v1", model="m", name="lab"),)
        return default_model_from(served, environ, workdir), default_model_from((offline(),), environ, workdir)

    own = LAB.replace("[providers]", '[providers]\ndefault_model = "lab:qwen3"')
    assert said(preferred, here, own) == ("lab:qwen3", None)
    assert said(preferred, here, LAB) == (None, None)


@pytest.mark.anyio
async def test_a_swarm_prefers_what_the_settings_say_only_where_they_say_who_serves(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / HOME).write_text('[providers]\ndefault_model = "offline:mine"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "home"))
    monkeypatch.chdir(here / "home")
    made = shoal.Blueprint("any", stages=(shoal.Stage("only", system_prompt="Say something."),))
    models: list[str] = []
    for swarm in (shoal.Swarm(), shoal.Swarm([offline()]), shoal.Swarm(default_model="offline:given")):
        async with swarm:
            run = await swarm.spawn(made, task="x")
            models.append(next(e.payload.model for e in swarm.journal.read(run.run_id) if e.kind == "StageEntered"))
    assert models == ["mine", "offline", "given"]


def test_the_environment_wins_over_the_settings(here: Path):
    assert serving(here, LAB, SHOAL_PROVIDER="offline")[0][0] == "offline"
    assert serving(here, LAB, SHOAL_PROVIDER="lab", SHOAL_MODEL="other") == [("lab", "other")]


@pytest.mark.parametrize(
    ("own", "variables", "why"),
    [
        (
            LAB,
            {},
            "the settings names 'openai' and its key is not set; put it into `OPENAI_API_KEY`",
        ),
        (LAB.replace('"openai"', '"nobody"'), {}, "`providers.use` in .* names 'nobody'; write one of `offline`"),
        ('[providers]\ndefault_model = "nobody:m"\n', {}, "`providers.default_model` in .* names 'nobody'; write one"),
        ("[providers]\ndefault_model = 3\n", {}, "Expected `str | null`"),
        ('[providers.lab]\nmodel = "x"\n', {}, "is a server of your own and has no `base_url`"),
        ("[providers.lab]\nbase_url = 5\n", {}, r"`\[providers\.lab\]` in .* is of no use: Expected `str"),
        ('[providers.lab]\nbase_urls = "x"\n', {}, "unknown field"),
        ("providers = 3\n", {}, "is no table"),
        (LAB, {"SHOAL_PROVIDER": "labs"}, "`SHOAL_PROVIDER` is 'labs'; set it to one or more of .*`lab`"),
        (LAB.replace("model", 'key_env = "LAB"\nmodel'), {}, "names 'lab' and its key is not set; put it into `LAB`"),
    ],
)
def test_providers_that_cannot_serve_are_refused(here: Path, own: str, variables: dict[str, str], why: str):
    with pytest.raises(ConfigInvalid, match=why):
        serving(here, own, **variables)
