"""MCP servers as sources of tools, tried with real ones in processes of their own."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import types
from runkit import TALK, TASK, blueprint, bodies, messages, stage

from shoal.blueprints import Blueprint
from shoal.errors import ConfigInvalid, DefinitionMissing, SpawnRefused
from shoal.runtime import McpServer, Permissions, SqliteJournal, Swarm
from shoal.runtime._mcp import Connection
from shoal.runtime._mcp_said import effects_of, legal_names, read_piece
from shoal.runtime.tools import Effects
from shoal.testing import Say, ScriptedProvider, call


def _held(contents: Any) -> types.EmbeddedResource:
    return types.EmbeddedResource(type="resource", resource=contents)


pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(60)]

SCRIPT = Path(__file__).parent / "data" / "mcp_server.py"
LOCAL = McpServer("local", (sys.executable, str(SCRIPT)), env={"FOR_TESTS": "hidden"})
ALLOWED = Permissions(launch=dict.fromkeys(("local__add", "local__fails", "local__picture", "local__dies"), "allow"))


def scripted(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def does(name: str, call_id: str = "c", **arguments: Any) -> Say:
    return Say(calls=(call(name, call_id, **arguments),))


def using(*tools: str, connectors: tuple[str, ...] = ()) -> Blueprint:
    return blueprint(stage(available_tools=tools, available_connectors=connectors), regions=(TASK, TALK))


@asynccontextmanager
async def swarm_with(*replies: Any, server: McpServer = LOCAL, **more: Any) -> AsyncGenerator[tuple[Swarm, Any]]:
    provider = scripted(*replies)
    more.setdefault("permissions", ALLOWED)
    with anyio.fail_after(120):
        async with Swarm([provider], mcp=[server], **more) as swarm:
            yield swarm, provider


def results(provider: ScriptedProvider) -> list[str]:
    return [text for role, text in messages(bodies(provider)[-1]) if role == "tool"]


def offered(provider: ScriptedProvider) -> list[str]:
    return [each["function"]["name"] for each in bodies(provider)[0]["tools"]]


# --- names, and who sees what


async def test_a_stage_that_names_a_server_is_offered_all_its_tools_under_legal_names():
    async with swarm_with("done") as (swarm, provider):
        run = await swarm.spawn(using(connectors=("local",)), task="x")
        await run.result()
    assert offered(provider) == [
        "local__add",
        "local__dies",
        "local__fails",
        "local__odd_name_",
        "local__picture",
        "local__secret",
        "local__slow",
    ]


@pytest.mark.parametrize("name", ["local__add", "add"])
async def test_a_stage_may_name_one_tool_whole_or_bare(name: str):
    async with swarm_with(does("local__add", a=2, b=3), "done") as (swarm, provider):
        run = await swarm.spawn(using(name), task="x")
        await run.result()
    assert offered(provider) == ["local__add"]
    assert results(provider) == ["5"]


async def test_a_tool_that_no_server_has_refuses_the_spawn():
    async with swarm_with() as (swarm, _):
        with pytest.raises(SpawnRefused, match="lists `local__nothing`, which nobody has"):
            await swarm.spawn(using("local__nothing"), task="x")


async def test_a_server_that_is_not_here_refuses_the_spawn():
    async with swarm_with() as (swarm, _):
        with pytest.raises(SpawnRefused, match="needs the MCP server 'other', and this swarm has `local`"):
            await swarm.spawn(using(connectors=("other",)), task="x")


async def test_a_server_that_does_not_start_refuses_the_spawn():
    broken = McpServer("local", (sys.executable, "-c", "raise SystemExit(3)"), connect_timeout_s=20)
    async with swarm_with(server=broken) as (swarm, _):
        with pytest.raises(SpawnRefused, match="cannot begin: the MCP server 'local' did not answer"):
            await swarm.spawn(using(connectors=("local",)), task="x")


async def test_a_program_that_is_not_there_refuses_the_spawn():
    async with swarm_with(server=McpServer("local", ("no-such-program-here",))) as (swarm, _):
        with pytest.raises(SpawnRefused, match="no-such-program-here"):
            await swarm.spawn(using(connectors=("local",)), task="x")


async def test_nobody_starts_a_server_that_no_stage_names():
    async with swarm_with("done", server=McpServer("local", ("no-such-program-here",))) as (swarm, _):
        run = await swarm.spawn(using("context_append"), task="x")
        assert (await run.result()).output == "done"


async def test_a_built_in_of_that_name_wins_over_a_servers_bare_one():
    async with swarm_with("done") as (swarm, provider):
        await (await swarm.spawn(using("shell"), task="x")).result()
    assert offered(provider) == ["shell"]


# --- calls


async def test_a_tool_of_a_server_asks_first_unless_somebody_allowed_it():
    async with swarm_with(does("local__add", a=2, b=3), "done", permissions=Permissions()) as (swarm, provider):
        await (await swarm.spawn(using("add"), task="x")).result()
    (result,) = results(provider)
    assert result.startswith("[denied] `local__add` needs")


async def test_what_a_tool_fails_with_is_what_the_model_reads():
    async with swarm_with(does("local__fails"), "done") as (swarm, provider):
        await (await swarm.spawn(using("fails"), task="x")).result()
    (result,) = results(provider)
    assert result.startswith("[error] ")
    assert "fails" in result


async def test_arguments_are_checked_before_a_server_sees_them():
    async with swarm_with(does("local__add", a="two", b=3), "done") as (swarm, provider):
        await (await swarm.spawn(using("add"), task="x")).result()
    assert results(provider)[0].startswith("[error] ")


async def test_a_picture_of_a_server_is_a_part():
    async with swarm_with(does("local__picture"), "done") as (swarm, _):
        run = await swarm.spawn(using("picture"), task="x")
        await run.result()
        kinds = [event.kind for event in swarm.journal.read(run.run_id)]
    assert "PartStored" in kinds


async def test_a_server_that_dies_is_an_error_and_is_started_again_for_the_next_call():
    replies = (does("local__dies"), does("local__add", "d", a=1, b=1), "done")
    async with swarm_with(*replies) as (swarm, provider):
        await (await swarm.spawn(using("dies", "add"), task="x")).result()
    died, added = results(provider)
    assert died.startswith("[error] the MCP server 'local' did not answer")
    assert added == "2"


async def test_a_call_that_takes_too_long_is_an_error():
    server = replace(LOCAL, timeout_s=0.5)
    allowed = Permissions(launch={"local__slow": "allow"})
    async with swarm_with(does("local__slow"), "done", server=server, permissions=allowed) as (swarm, provider):
        await (await swarm.spawn(using("slow"), task="x")).result()
    assert results(provider)[0].startswith("[error] the MCP server 'local' did not answer")


async def test_a_server_gets_the_variables_that_it_is_given():
    allowed = Permissions(launch={"local__secret": "allow"})
    async with swarm_with(does("local__secret"), "done", permissions=allowed) as (swarm, provider):
        await (await swarm.spawn(using("secret"), task="x")).result()
    assert results(provider) == ["hidden"]


def test_variables_and_headers_do_not_show():
    assert "hidden" not in repr(LOCAL)


# --- over time


async def test_a_server_is_let_go_after_an_idle_time_and_started_again():
    connection = Connection(replace(LOCAL, idle_s=0.2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.serve)
        first = await connection.tools()
        assert await connection.tools() is first
        while connection._tools is not None:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        assert [tool.name for tool in await connection.tools()] == [tool.name for tool in first]
        tasks.cancel_scope.cancel()


async def test_a_resumed_run_calls_the_server_again(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_with(Say("late", delay_s=100), journal=journal) as (swarm, _):
        run = await swarm.spawn(using("add"), task="x")
        async with aclosing(run.events()) as events:
            while (await anext(events)).kind != "InferenceStarted":
                pass
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_with(does("local__add", a=2, b=2), "done", journal=journal) as (swarm, provider):
        await (await swarm.resume_tree(run.run_id)).result()
    journal.close()
    assert results(provider) == ["4"]


async def test_a_run_whose_server_is_not_given_again_cannot_be_resumed(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_with(Say("late", delay_s=100), journal=journal) as (swarm, _):
        run = await swarm.spawn(using("add"), task="x")
    journal.close()
    journal = SqliteJournal(path)
    async with Swarm([scripted()], journal=journal) as swarm:
        assert swarm.get(run.run_id).region("task") == "x"
        with pytest.raises(DefinitionMissing, match="uses tools of the MCP server 'local'; give it again with"):
            await swarm.resume_tree(run.run_id)
    journal.close()


# --- over HTTP, and a server of somebody else


@asynccontextmanager
async def over_http() -> AsyncGenerator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with await anyio.open_process([sys.executable, str(SCRIPT), str(port)], stderr=None) as server:
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    break
            except OSError:
                await anyio.sleep(0.1)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


async def test_a_server_is_reached_over_http():
    async with over_http() as url:
        server = McpServer("local", url=url, headers={"Authorization": "Bearer hidden"})
        async with swarm_with(does("local__add", a=2, b=3), "done", server=server) as (swarm, provider):
            await (await swarm.spawn(using("add"), task="x")).result()
    assert results(provider) == ["5"]


async def test_an_address_where_nobody_answers_refuses_the_spawn():
    server = McpServer("local", url="http://127.0.0.1:9/mcp", connect_timeout_s=5)
    async with swarm_with(server=server) as (swarm, _):
        with pytest.raises(SpawnRefused, match="cannot begin: the MCP server 'local' did not answer"):
            await swarm.spawn(using(connectors=("local",)), task="x")


async def test_a_server_of_somebody_else_tells_the_time():
    server = McpServer("time", (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"))
    allowed = Permissions(launch={"time__convert_time": "allow"})
    asked = does("time__convert_time", source_timezone="Europe/Zurich", time="12:00", target_timezone="Asia/Tokyo")
    async with swarm_with(asked, "done", server=server, permissions=allowed) as (swarm, provider):
        await (await swarm.spawn(using("convert_time"), task="x")).result()
    assert "Asia/Tokyo" in json.loads(results(provider)[0])["target"]["timezone"]


# --- what is wrong before anything starts


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("", {"command": ("x",)}, "cannot name an MCP server"),
        ("a b", {"command": ("x",)}, "cannot name an MCP server"),
        ("a", {}, "needs either a `command` or a `url`"),
        ("a", {"command": ("x",), "url": "http://x"}, "needs either a `command` or a `url`"),
    ],
)
def test_a_server_that_cannot_be_one_is_refused(name: str, more: dict[str, Any], said: str):
    with pytest.raises(ConfigInvalid, match=said):
        McpServer(name, **more)


async def test_two_servers_of_one_name_are_refused():
    with pytest.raises(ConfigInvalid, match="two MCP servers have the same name"):
        async with Swarm([scripted()], mcp=[LOCAL, LOCAL]):
            pass


class Hints:
    def __init__(self, **hints: bool) -> None:
        self.read_only_hint = hints.get("reads")
        self.idempotent_hint = hints.get("idempotent")
        self.open_world_hint = hints.get("open")


@pytest.mark.parametrize(
    ("hints", "effects"),
    [
        (None, Effects(writes=True, network=True)),
        (Hints(reads=True, open=False), Effects(reads=True)),
        (Hints(reads=True), Effects(reads=True, network=True)),
        (Hints(idempotent=True, open=False), Effects(writes=True, idempotent=True)),
    ],
)
def test_the_hints_of_a_server_are_effects(hints: Any, effects: Effects):
    assert effects_of(hints) == effects


# --- what servers may say


@pytest.mark.parametrize(
    ("piece", "text", "part"),
    [
        (types.TextContent(type="text", text="said"), "said", None),
        (types.AudioContent(type="audio", data="AAEC", mimeType="audio/wav"), "", ("audio.wav", b"\x00\x01\x02")),
        (types.ResourceLink(type="resource_link", name="a page", uri="file:///a.md"), "[a page](file:///a.md)", None),
        (_held(types.TextResourceContents(uri="file:///a.md", text="inside")), "inside", None),
        (_held(types.BlobResourceContents(uri="file:///a.bin", blob="AAEC")), "", ("a.bin", b"\x00\x01\x02")),
    ],
)
def test_every_kind_of_answer_is_text_or_a_part(piece: Any, text: str, part: tuple[str, bytes] | None):
    said, found = read_piece(piece)
    assert said == text
    assert (found and (found.name, found.data)) == part


def test_names_that_become_equal_are_told_apart():
    long = "x" * 100
    assert list(legal_names("s", ["a b", "a_b", "a.b"])) == ["s__a_b", "s__a_b_2", "s__a_b_3"]
    assert [len(name) for name in legal_names("s", [long, long])] == [64, 64]
    assert len(set(legal_names("s", [long, long]))) == 2


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    async with swarm_with() as (swarm, _):
        with pytest.raises(SpawnRefused, match=r"install `shoal\[mcp\]`"):
            await swarm.spawn(using(connectors=("local",)), task="x")


async def test_a_run_that_is_cancelled_in_a_call_leaves_the_server_for_others():
    allowed = Permissions(launch={"local__slow": "allow", "local__add": "allow"})
    replies = (does("local__slow"), does("local__add", a=1, b=2), "done")
    async with swarm_with(*replies, permissions=allowed) as (swarm, provider):
        first = await swarm.spawn(using("slow", "add"), task="x")
        while "ToolCallStarted" not in [event.kind for event in swarm.journal.read(first.run_id)]:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        await first.cancel()
        second = await swarm.spawn(using("slow", "add"), task="y")
        await second.result()
    assert results(provider) == ["3"]
