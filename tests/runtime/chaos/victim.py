"""A process that runs a swarm with real tools, and kills itself with SIGKILL at the point that it is told.

`python victim.py` reads one plan a line, as JSON, and forks a process for each: imported once, killed often. It answers
each with how that process ended. The plan names a folder; in it are the journal, the working directory, and two files
that the journal knows nothing of: `work/calls.log` (a line for each shell call that took effect) and `outside` (a line
for each event that an observer was shown, and for each reply that was given, in their order).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

import shoal
from shoal.blueprints import loads
from shoal.errors import AnswerRefused, ProviderUnavailable, RunEnded
from shoal.providers import Completed, ModelProfile, Request, RetryPolicy, StreamEvent
from shoal.runtime import Event, Limits, Permissions
from shoal.runtime.events import QuestionAsked, StageEntered, encode
from shoal.testing import Say, ScriptedProvider, call

BLUEPRINT = """
[agent]
name = "chaos"
entry_stage = "prepare"

[defaults]
model = [{ provider = "flaky" }, { provider = "steady" }]

[components]
use = ["memory", "environment", "git_flag"]

[tool_permissions]
write_file = "ask"

[context.regions]
task = { kind = "pinned", max_tokens = 500, seed = "task_input", volatility = "stable" }
notes = { kind = "pinned", max_tokens = 2000 }
wish = { kind = "pinned", max_tokens = 100 }
brain = { kind = "custom", max_tokens = 500, script = "brain.py" }
todos = { kind = "checklist", max_tokens = 1000 }
facts = { kind = "hashmap", max_tokens = 1000 }
log = { kind = "compacting", max_tokens = 500, compact_at = "50%" }
recent = { kind = "temporary", max_tokens = 120, volatility = "stable" }
draft = { kind = "temporary", max_tokens = 500, seed = { files = ["draft.txt"], refresh = "each_stage" } }
results = { kind = "pinned", max_tokens = 3000 }
conversation = { kind = "sliding_window", max_tokens = 60000, max_items = 1000 }

[stages.prepare]
available_tools = [
    "shell", "read_file", "write_file", "ask_user_choice", "context_write", "context_append", "todo_add", "todo_done"
]
max_iterations = 60
[stages.prepare.transitions]
merge = { hint = "nothing to hand out" }
[stages.prepare.transitions.split]
hint = "hand the rest out"
gate = { require_no_open_items = "todos", require_regions = ["wish"], max_attempts = 2 }

[stages.split]
mode = "fan_out"
worker_stage = "work"
merge_stage = "merge"
results_region = "results"
max_workers = 2
available_tools = ["read_file"]

[stages.merge]
mode = "output"
max_iterations = 30
available_tools = ["shell", "read_file", "context_append", "spawn_agent", "wait_for_agent", "send_to_agent"]
[stages.merge.transitions]
[stages.merge.hooks]
on_stage_enter = "hooks.py"
[stages.merge.context]
reset = ["recent"]

[stages.work]
allow_as_worker = true
mode = "output"
max_iterations = 30
available_tools = ["shell", "read_file"]
"""

CHANGED = loads(BLUEPRINT.replace("max_tokens = 2000", "max_tokens = 1900"))
"""What the run goes on with once somebody has changed it."""
HELPER = """
[agent]
name = "helper"

[context.regions]
task = { kind = "pinned", max_tokens = 500, seed = "task_input" }
conversation = { kind = "sliding_window", max_tokens = 20000, max_items = 100 }

[stages.help]
mode = "output"
max_iterations = 30
available_tools = ["shell", "read_file"]
"""
"""What the run has work for it, once waited for in the call and once beside it."""

ACT = """
set -e
me=$1-$2
if [ -f kill-$1 ] && mkdir died-$1 2>/dev/null; then
    how=$(cat kill-$1)
    case $how in
        before) kill -9 $(cat victim.pid); exit 0 ;;
        late) kill -9 $(cat victim.pid); sleep 0.05 ;;
    esac
fi
echo "$me" >> calls.log
if [ "$how" = after ] || [ "$how" = late ]; then
    kill -9 $(cat victim.pid) 2>/dev/null || true
    sleep 0.05
fi
echo "did $1"
"""
"""What the shell tool runs: `sh act.sh STEP TRY` takes effect once, and may kill the process that it works for."""

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
)
INTERRUPTED = "whether it had an effect is unknown"
LINES = 8
ITEMS = ("a", "b", "c")
REGIONS = ("task", "notes", "todos", "facts", "draft", "results")
"""Regions that say the same however often the process died."""


# --- the model: it looks at what it was shown, and keeps nothing in mind


class Past:
    """What the conversation of a request shows of earlier calls: name, arguments and result of each."""

    def __init__(self, request: Request) -> None:
        said = [message for segment in request.messages for message in segment.messages]
        results = {message.call_id: message.text for message in said if message.role == "tool"}
        self._texts = [message.text for message in said]
        failed = {message.call_id for message in said if message.is_error}
        self.calls = [
            (made.name, json.loads(str(made.arguments)), results.get(made.call_id, ""), made.call_id in failed)
            for message in said
            for made in message.calls
        ]

    def done(self, name: str, **args: object) -> bool:
        """Say whether such a call succeeded."""
        return any(
            known == name and not failed and all(given.get(key) == value for key, value in args.items())
            for known, given, _, failed in self.calls
        )

    def said(self, text: str) -> bool:
        """Say whether somebody said *text*."""
        return any(text in message for message in self._texts)

    def step(self, step: str) -> Any:
        """Return the call that a shell step needs next; `None` where it took effect.

        A call whose effect is unknown is looked up in the log, and made again, as another try, where it is not there.
        """
        tries, unknown = 0, False
        for name, given, result, _ in self.calls:
            if name == "shell" and f" {step} " in given["command"]:
                if f"did {step}" in result:
                    return None
                tries, unknown = tries + 1, INTERRUPTED in result
            elif name == "read_file" and given["path"] == "calls.log" and unknown:
                if any(line.split(" ")[-1].rpartition("-")[0] == step for line in result.splitlines()):
                    return None
                unknown = False
        if unknown:
            return call("read_file", path="calls.log")
        return call("shell", command=f"sh act.sh {step} try{tries}")


def answer(request: Request) -> Any:
    """Return what the model says to *request*."""
    assert request.situation is not None
    stage = request.situation().stage
    if request.purpose == "titling":
        return "no title " * 20
    if request.purpose == "compaction":
        return "lines were written"
    if request.purpose == "routing":
        return "split"
    past = Past(request)
    return {"prepare": prepare, "split": split, "work": work, "merge": merge, "help": work}[stage](request, past)


def prepare(request: Request, past: Past) -> Any:
    if not past.done("context_write"):
        return Say(
            calls=(
                call("context_write", region="notes", content="begun"),
                call("context_write", region="facts", key="colour", content="unknown"),
                call("context_write", region="brain", content="a thought"),
                call("todo_add", region="todos", item="write the draft"),
                call("shell", command="sh act.sh first try0"),
                call("shell", command="sh act.sh second try0"),
            )
        )
    for step in ("first", "second"):
        wanted = past.step(step)
        if wanted is not None:
            return wanted
    if not past.done("write_file"):
        return call("write_file", path="draft.txt", content="a draft\n")
    written = sum(name == "context_append" and given["region"] == "log" for name, given, _, _ in past.calls)
    if written < LINES:
        line = f"line {written} " + "of what happened " * 6
        return Say(
            calls=(
                call("context_append", region="log", content=line),
                call("context_append", region="recent", content=line),
            )
        )
    wanted = past.step("third")
    if wanted is not None:
        return wanted
    if not past.done("ask_user_choice"):
        return call("ask_user_choice", prompt="Which colour?", options=["red", "blue"])
    if not past.done("context_write", key="colour", content="blue"):
        return call("context_write", region="facts", key="colour", content="blue")
    if past.said("prepared") and not past.done("todo_done"):
        return call("todo_done", region="todos", id=1)
    return "prepared"


def split(request: Request, past: Past) -> Any:
    items = [{"id": item, "seeds": {"task": f"item {item}"}} for item in ITEMS]
    return call("fan_out", items=[*items, {"id": "bad", "seeds": {"nonsense": "nobody takes it"}}])


def work(request: Request, past: Past) -> Any:
    assert request.situation is not None
    item = request.situation().regions["task"].split()[-1]
    wanted = past.step(f"item{item}" if item in ITEMS else item)
    if wanted is not None:
        return wanted
    return "submitted" if past.done("submit_output") else call("submit_output", content=item)


def help_with(past: Past) -> Any:
    """Return the call that the helpers need next; `None` once both have answered."""
    helper = str(Path.cwd() / "helper")
    if not past.done("spawn_agent", task="now"):
        return call("spawn_agent", blueprint=helper, task="now", wait=True)
    beside = [result for name, given, result, _ in past.calls if name == "spawn_agent" and given["task"] == "beside"]
    if not beside:
        return call("spawn_agent", blueprint=helper, task="beside")
    agent_id = beside[-1].partition("agent ")[2].partition(";")[0]
    if not any(name == "send_to_agent" for name, *_ in past.calls):
        return call("send_to_agent", agent_id=agent_id, message="be quick")
    return None if past.done("wait_for_agent") else call("wait_for_agent", agent_id=agent_id)


def merge(request: Request, past: Past) -> Any:
    wanted = past.step("last")
    if wanted is not None:
        said = [
            m for segment in request.messages for m in segment.messages if "Act through" in "".join(map(str, m.texts))
        ]
        # The first time it only talks, and is told to act.
        return wanted if past.calls or said else "let me think"
    helped = help_with(past)
    if helped is not None:
        return helped
    if not past.done("context_append", region="notes"):
        return call("context_append", region="notes", content="merged")
    return "submitted" if past.done("submit_output") else call("submit_output", content="all of it")


class Watched:
    """A provider that writes down what it answered, fails each first request, and may die around an answer."""

    def __init__(self, name: str, deaths: Deaths, outside: int) -> None:
        self.inner = ScriptedProvider(script=answer, name=name)
        self.name = name
        self.default_model = self.inner.default_model
        self.count_tokens = self.inner.count_tokens
        self.aclose = self.inner.aclose
        self._deaths = deaths
        self._outside = outside
        self._failed = False

    def profile(self, model: str) -> ModelProfile:
        return replace(self.inner.profile(model), append_only=self.name == "steady")

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        assert request.situation is not None
        if self.name == "flaky" and (not self._failed or request.situation().stage == "merge"):
            self._failed = True
            raise ProviderUnavailable("flaky: not now", provider=self.name, model=request.model)
        if request.purpose == "stage" and request.situation().stage == "merge" and _first("crashed"):
            raise ZeroDivisionError("a defect")
        self._deaths.at("request", request.purpose)
        async for event in self.inner.stream(request):
            if isinstance(event, Completed):
                line = f"reply {request.run_id} {request.purpose} {request.digest.hex()}\n"
                os.write(self._outside, line.encode())
                self._deaths.at("reply", request.purpose)
            yield event


def _first(name: str) -> bool:
    """Say whether nobody has asked for *name* in this folder, in this process or an earlier one."""
    try:
        Path(name).mkdir()
    except FileExistsError:
        return False
    return True


# --- scripts: functions that stand in their place


def on_write(ctx: Any) -> None:
    raise ValueError("it has no opinion")


def render(ctx: Any) -> str:
    return "it thinks"


def on_stage_enter(ctx: Any) -> Any:
    return {"action": "modify", "value": {"notes": "begun, and gone on with", "log": ""}}


SCRIPTS = {
    "brain.py": {"on_write": on_write, "render": render},
    "hooks.py": {"on_stage_enter": on_stage_enter},
}

# --- death


class Deaths:
    """Kills the process at the n-th time that something of a kind happens.

    Args:
        where: `append`, `appended`, `durable`, `request` or `reply`; empty for never.
        kind: The kind of event, or what a request is for.
        number: Which of them, from 1.
    """

    def __init__(self, where: str = "", kind: str = "", number: int = 1) -> None:
        self._where, self._kind, self._number = where, kind, number
        self._seen: Counter[str] = Counter()

    def at(self, where: str, kind: str) -> None:
        if where != self._where or kind != self._kind:
            return
        self._seen[kind] += 1
        if self._seen[kind] == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


# --- the life of one process


class Acks:
    """An observer that writes down each event that it is shown, where no journal can lose it."""

    def __init__(self, file: int, deaths: Deaths, news: anyio.abc.ObjectSendStream[Event]) -> None:
        self._file, self._deaths, self._news = file, deaths, news

    def __call__(self, event: Event) -> None:
        line = f"event {event.run_id} {event.seq} {zlib.crc32(encode(event.payload))} {event.kind}\n"
        os.write(self._file, line.encode())
        self._deaths.at("durable", event.kind)
        if isinstance(event.payload, QuestionAsked | StageEntered):
            self._news.send_nowait(event)


async def live(plan: Mapping[str, Any]) -> None:
    """Begin the run or take it up, do what people do, and return when it is over."""
    folder = Path(plan["folder"])
    os.chdir(folder)
    deaths = Deaths(**plan["death"])
    outside = os.open(folder / "outside", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    post, news = anyio.create_memory_object_stream[Event](1000)
    (folder / "work" / "victim.pid").write_text(f"{os.getpid()}")
    swarm = shoal.Swarm(
        [Watched("flaky", deaths, outside), Watched("steady", deaths, outside)],  # type: ignore[list-item]
        journal=folder / "runs.db",
        durability=plan["durability"],
        observers=[Acks(outside, deaths, post)],
        permissions=Permissions(launch={"shell": "allow"}),
        retry=RetryPolicy(attempts=2, blip_s=0.001),
        limits=Limits(idle_s=0.05),
        scripts=SCRIPTS,
    )
    async with swarm:
        append = swarm.journal.append

        def dying(event: Event) -> None:
            deaths.at("append", event.kind)
            append(event)
            deaths.at("appended", event.kind)

        swarm.journal.append = dying  # type: ignore[method-assign]
        runs = swarm.runs()
        if runs:
            run = runs[0]
            with suppress(RunEnded):  # it may have died with nothing left to do
                run = await swarm.resume_tree(runs[0].run_id)
        else:
            run = await swarm.spawn(loads(BLUEPRINT), task="live on", workdir=folder / "work", unattended=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(people, swarm, run, news)
            outcome = await run.result(wait_paused=True)
            tasks.cancel_scope.cancel()
        state = swarm.state(run.run_id)
        same = state.dump() == swarm.hall.home.load(run.run_id).dump()
        (folder / "regions").write_text(json.dumps({name: run.region(name) for name in REGIONS}))
        (folder / "outcome").write_text(json.dumps([outcome.status, outcome.output, outcome.reason, same]))


async def people(swarm: shoal.Swarm, run: shoal.Run, news: anyio.abc.ObjectReceiveStream[Event]) -> None:
    """Answer what is asked, write once, set a timer once, and have the run go on with a changed blueprint once."""
    for question in swarm.questions():
        await reply(swarm, question)
    async for event in news:
        if isinstance(event.payload, QuestionAsked):
            if event.payload.about == "choice":
                await anyio.sleep(0.12)  # long enough for the run to leave memory
            for question in swarm.questions(event.run_id):
                await reply(swarm, question)
        elif isinstance(event.payload, StageEntered) and event.run_id == run.run_id:
            with suppress(RunEnded):
                await meddle(swarm, run, event.payload.stage)


async def reply(swarm: shoal.Swarm, question: Any) -> None:
    with suppress(AnswerRefused, RunEnded):
        await swarm.answer(question.run_id, "run" if question.about == "approval" else "blue", question=question.seq)


async def meddle(swarm: shoal.Swarm, run: shoal.Run, stage: str) -> None:
    known = {event.kind for event in swarm.journal.read(run.run_id)}
    if stage == "split" and "MessageReceived" not in known:
        await run.send("hurry up", parts=[PIXEL])
    if stage == "split" and "TimerSet" not in known:
        await run.wake_at(0.0, "it is late")
    if stage == "merge" and "RunPaused" not in known:
        await run.pause()
        await run.resume()
        await run.pause()
        await swarm.resume_tree(run.run_id, blueprint=CHANGED)


# --- many of them


def serve(lines: Iterator[str]) -> None:
    """Fork a process for each plan, and say how it ended."""
    for line in lines:
        plan = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                anyio.run(live, plan, backend=plan["backend"])
                status = 0
            except BaseException:  # noqa: BLE001 - told where the test can read it
                (Path(plan["folder"]) / "said").write_text(traceback.format_exc())
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve(iter(sys.stdin.readline, ""))
