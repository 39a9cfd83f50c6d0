"""Every blueprint of the library: nothing to warn of, its own tests, its prompts, and a job over two vendors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from shoal.blueprints import library, load
from shoal.cli._validate import findings_at
from shoal.providers import Provider, Request, StreamEvent, anthropic, offline, openai
from shoal.runtime import Permissions, Swarm, virtual
from shoal.testing import Case, cases_of, request_json, run_case, wire

pytestmark = pytest.mark.anyio

NAMES = sorted(library())
CASES = [(name, case) for name in NAMES for case in cases_of(library()[name])]
SEVEN = ["coder", "data-analyst", "deep-researcher", "digest", "log-analyzer", "researcher", "reviewer"]
TRUE_NOTES = {"digest": {"tool-seed", "refreshing-seed", "stage-changes-tools"}}
"""What `shoal validate` says of digest: that its seed calls a tool, and what its stages cost."""


def test_the_library_has_seven() -> None:
    assert NAMES == SEVEN


@pytest.mark.parametrize("name", NAMES)
def test_each_has_nothing_to_complain_about(name: str) -> None:
    found = list(findings_at(library()[name], set()))
    assert {finding.severity for finding in found} <= {"note"}
    assert {finding.id for finding in found} == TRUE_NOTES.get(name, set())


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case.name}" for name, case in CASES])
async def test_each_passes_its_own_tests(name: str, case: Case) -> None:
    result = await run_case(load(library()[name]), case, [offline()])
    assert result.failures == ()


# --- prompts


class Watched:
    """The offline provider, which remembers what it was sent."""

    def __init__(self) -> None:
        self._inner = offline()
        self.name, self.default_model = self._inner.name, self._inner.default_model
        self.requests: list[Request] = []

    def profile(self, model: str) -> Any:
        return self._inner.profile(model)

    async def count_tokens(self, request: Request) -> Any:
        return await self._inner.count_tokens(request)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await self._inner.aclose()


def readable(request: Request) -> str:
    """Return *request* for people: its tools, then each message under its role."""
    body = request_json(request)
    tools = ", ".join(tool["function"]["name"] for tool in body.get("tools", ()))
    lines = [f"tools: {tools or 'none'}"]
    for message in body["messages"]:
        calls = "".join(
            f"\n[call {c['function']['name']} {c['function']['arguments']}]" for c in message.get("tool_calls", ())
        )
        lines.append(f"--- {message['role']}\n{message.get('content') or ''}{calls}")
    return "\n".join(lines) + "\n"


def firsts(events: Sequence[Any], requests: Sequence[Request]) -> Mapping[str, Request]:
    """Return the first request of each stage, by stage."""
    digests = {request.digest.hex(): request for request in requests}
    found: dict[str, Request] = {}
    stage = ""
    for event in events:
        if event.kind == "StageEntered":
            stage = event.payload.stage
        elif event.kind == "InferenceStarted" and event.payload.purpose == "stage":
            found.setdefault(stage, digests[event.payload.prompt_digest])
    return found


@pytest.mark.parametrize("name", NAMES)
async def test_each_stage_sends_what_it_always_sent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_prompt: Callable[[str, str], None]
) -> None:
    monkeypatch.setattr("shoal.runtime._facts._environment", lambda host: {"system": "Linux", "shell": "/bin/bash"})
    case = cases_of(library()[name])[0]
    for path, text in case.files.items():
        await anyio.Path(tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        await anyio.Path(tmp_path / path).write_text(text)
    provider = Watched()
    async with Swarm([provider], clock=virtual()) as swarm:
        run = await swarm.spawn(name, task=case.task, workdir=tmp_path)
        await run.result()
        for each in swarm.runs():
            if each.run_id != run.run_id and not _is_first(swarm, each.run_id, each.name):
                continue
            for stage, request in firsts(list(swarm.journal.read(each.run_id)), provider.requests).items():
                text = readable(request).replace(str(tmp_path), "/work")
                same_prompt(f"library/{name}/{each.name}-{stage}", text)


def _is_first(swarm: Swarm, run_id: str, name: str) -> bool:
    """Say whether a worker is the first of its kind by what it was given: workers begin in any order."""
    alike = [each.run_id for each in swarm.runs() if each.name == name]
    given = {each: str(sorted(dict(swarm.state(each).made_by.seeds).items())) for each in alike}
    return min(given, key=lambda each: given[each]) == run_id


# --- over vendors


KEY = "a-key-of-the-tests"
VENDORS: Mapping[str, Callable[[httpx.AsyncBaseTransport], Provider]] = {
    "anthropic": lambda http: anthropic(KEY, model="claude-opus-5-5", base_url="http://nowhere", http=http),
    "openai": lambda http: openai(KEY, model="gpt-6.1-sol", base_url="http://nowhere/v1", http=http),
}
FILES = {"a.txt": "The pier is long.\n", "b.txt": "The sea is wide.\n"}
LOOK = (wire.call("list_dir", path="."), wire.call("read_file", path="a.txt"), wire.call("read_file", path="b.txt"))
SUBMIT = (wire.call("submit_output", content="The pier is long."),)
DONE = ("Done.",)


EDIT = wire.call("edit_file", path="a.txt", old_str="long", new_str="longer")


def fans(*keys: str) -> Any:
    """Return the call that hands the files to workers which take the values of *keys*."""
    items = [
        {"id": name, "seeds": {key: {"path": name, "question": "How long?"}[key] for key in keys}} for name in FILES
    ]
    return wire.call("fan_out", items=items)


def notes(region: str) -> Any:
    return wire.call("context_append", region=region, content="The pier is long (a.txt).")


# What a model does in a stage, in order, each once; a stage is known by words of its prompt.
PLAYS: Mapping[str, Mapping[str, Sequence[tuple[Any, ...]]]] = {
    "coder": {
        "Look at the code": [LOOK, (notes("plan"), wire.call("todo_add", region="steps", item="Mend it.")), DONE],
        "Carry out `plan`": [
            (
                wire.call("edit_file", path="a.txt", old_str="long", new_str="longer"),
                wire.call("read_file", path="b.txt"),
            ),
            (wire.call("todo_done", region="steps", id=1),),
            DONE,
        ],
        "Check the change": [(wire.call("shell", command="cat a.txt"), wire.call("read_file", path="a.txt")), DONE],
        "Write a short report": [SUBMIT, DONE],
    },
    "researcher": {
        "Before anything is read": [(wire.call("todo_add", region="questions", item="How long?"),), DONE],
        "List the working directory and read": [
            LOOK,
            (notes("notes"), wire.call("todo_done", region="questions", id=1)),
            DONE,
        ],
        "Answer `task` in Markdown from `notes`": [SUBMIT, DONE],
    },
    "deep-researcher": {
        "You lead investigators": [(wire.call("list_dir", path="."), notes("brief")), DONE],
        "Take the question": [(fans("question"),)],
        "Weigh `findings`": [DONE],
        "Answer `task` in Markdown from `findings`": [SUBMIT, DONE],
        "Answer `question`": [LOOK, SUBMIT, DONE],
    },
    "reviewer": {
        "Collect what `task`": [(*LOOK, wire.call("shell", command="cat a.txt b.txt")), DONE],
        "Review `change`": [(notes("remarks"), wire.call("read_file", path="a.txt")), DONE],
        "Write the review": [SUBMIT, DONE],
    },
    "log-analyzer": {
        "List the working directory, then": [(fans("path", "question"),)],
        "Read the log": [(wire.call("read_file", path="a.txt"), notes("events")), SUBMIT, DONE],
        "Answer `task` in Markdown from `findings`": [SUBMIT, DONE],
    },
    "data-analyst": {
        "List the working directory and look": [LOOK, DONE],
        "Measure what answers": [
            (
                wire.call("describe_table", csv="town,sales\nBergen,12\nOslo,7\n"),
                wire.call("group_table", csv="town,sales\nBergen,12\nOslo,7\n", by="town", of="sales"),
            ),
            (notes("figures"),),
            DONE,
        ],
        "Answer `task` in Markdown from `figures`": [SUBMIT, DONE],
    },
    "digest": {
        "You lead a swarm": [(wire.call("context_write", region="brief", content="Say it."), LOOK[1]), DONE],
        "Call `fan_out` once": [(fans("path"),)],
        "Read the file named": [(LOOK[1], LOOK[2]), SUBMIT, DONE],
        "Merge `findings`": [SUBMIT, DONE],
    },
}


def plays(name: str) -> wire.Brain:
    """Return a model that does in each stage what stands above, and leaves choices to the first that is offered."""

    def brain(ask: wire.Ask) -> wire.Turn:
        if "Give the task below a title" in ask.system:
            return wire.turn("A title")
        if "Answer with one name from this list" in ask.text:
            return wire.turn("write" if "- write" in ask.text else "report")
        said = [(at, each) for at, each in enumerate(ask.said)]
        places = [
            (at, words) for at, each in said for words in PLAYS[name] if words in each.text and each.role != "assistant"
        ]
        at, words = max(places, key=lambda each: each[0])
        made = {call.name for said in ask.said[at:] for call in said.calls}
        steps = PLAYS[name][words]
        due = [step for step in steps if {call.name for call in step if isinstance(call, wire.Call)} - made]
        return wire.turn(*(due or steps[-1:])[0])

    return brain


def second_fails(exchange: wire.Exchange) -> tuple[wire.Fault, ...]:
    return (wire.Cut(),) if exchange.number == 2 else ()


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("name", NAMES)
async def test_each_does_its_job_over_a_vendor_with_calls_at_once_and_a_stream_that_is_cut(
    name: str, vendor: str, tmp_path: Path
) -> None:
    for path, text in FILES.items():
        await anyio.Path(tmp_path / path).write_text(text)
    http = wire.InProcess(plays(name), wire.Settings(faults=second_fails))
    allowed = Permissions(launch=dict.fromkeys(("edit_file", "shell", "describe_table", "group_table"), "allow"))
    async with Swarm([VENDORS[vendor](http)], permissions=allowed, clock=virtual()) as swarm:
        run = await swarm.spawn(name, task="How long is the pier?", workdir=tmp_path)
        outcome = await run.result()
        events = [event for each in swarm.runs() for event in swarm.journal.read(each.run_id)]
    assert (outcome.status, outcome.output, outcome.flags) == ("complete", "The pier is long.", {})
    assert http.violations == ()
    failed = [
        str(event.payload.text) for event in events if event.kind == "ToolCallCompleted" and event.payload.is_error
    ]  # type: ignore[union-attr]
    assert failed == []
    assert [event.kind for event in events].count("InferenceRetried") == 1
