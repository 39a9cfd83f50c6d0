"""The offline provider on any blueprint: it brings a run to its end, or refuses to go on and says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runkit import events_of, payloads, swarm_of

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    Edge,
    FanOut,
    Gate,
    LiteralSeed,
    OfflineStep,
    OutputSpec,
    Region,
    Stage,
    StageContext,
    validate,
)
from shoal.providers import offline
from shoal.runtime import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.wall_limit(300)]

REGIONS = ("notes", "todo", "facts", "log", "scratch")
NAMES = ("read", "think", "write", "check")
TOOLS = (
    "ask_user_text",
    "context_append",
    "context_list",
    "context_read",
    "context_write",
    "current_time",
    "list_dir",
    "read_file",
    "submit_output",
    "todo_add",
    "todo_done",
)
TEXTS = st.sampled_from(
    [
        "",
        "Go.",
        "Read what is there. Then say what matters most of it.",
        "{task}",
        "{region(notes)}",
        "{result(1)}",
        "é\n\n",
    ]
)
REGION = {
    "notes": st.builds(Region, st.just("notes"), kind=st.just("pinned"), max_tokens=st.integers(1, 400)),
    "todo": st.builds(Region, st.just("todo"), kind=st.just("checklist"), required=st.booleans()),
    "facts": st.builds(Region, st.just("facts"), kind=st.just("hashmap"), max_entries=st.none() | st.integers(1, 3)),
    "log": st.builds(
        Region,
        st.just("log"),
        kind=st.sampled_from(["temporary", "clearable", "compacting"]),
        max_tokens=st.integers(20, 400),
        placement=st.none() | st.just("tail"),
        required=st.booleans(),
    ),
    "scratch": st.builds(Region, st.just("scratch"), kind=st.just("temporary"), seed=st.builds(LiteralSeed, TEXTS)),
}
CALLS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "context_append": st.fixed_dictionaries({"region": st.sampled_from(REGIONS), "content": TEXTS}),
    "context_list": st.just({}),
    "context_read": st.fixed_dictionaries({"region": st.sampled_from(REGIONS)}),
    "context_write": st.fixed_dictionaries({"region": st.sampled_from(REGIONS), "content": TEXTS}),
    "current_time": st.just({}),
    "list_dir": st.fixed_dictionaries({"path": st.sampled_from([".", "gone", "{task}"])}),
    "read_file": st.fixed_dictionaries({"path": st.sampled_from(["a.txt", "gone", "{item}"])}),
    "submit_output": st.fixed_dictionaries({"content": TEXTS}),
    "todo_add": st.fixed_dictionaries({"items": st.lists(TEXTS, max_size=3)}),
}


@st.composite
def steps(draw: st.DrawFn, tools: list[str], regions: list[str], targets: list[str]) -> OfflineStep:
    """A step of a policy that its stage could have, whether it makes sense or not."""
    calls = sorted(CALLS.keys() & set(tools))
    kinds = ["say", *(["call"] * 3 if calls else []), *(["each"] if "read_file" in tools else [])]
    kinds += [*(["extract"] if regions else []), *(["route"] if targets else [])]
    match draw(st.sampled_from(kinds)):
        case "call":
            call = draw(st.sampled_from(calls))
            return OfflineStep(call=call, args=draw(CALLS[call]), pages=draw(st.integers(1, 2)))
        case "each":
            source = draw(st.sampled_from(["result(1)", "result(2)", *[f"region({name})" for name in regions]]))
            return OfflineStep(call="read_file", args={"path": "{item}"}, for_each=source)
        case "extract":
            into = draw(st.sampled_from([None, *sorted({"submit_output", "context_write"} & set(tools))]))
            return OfflineStep(extract=draw(st.sampled_from(regions)), into=into)
        case "route":
            return OfflineStep(route=draw(st.sampled_from([*targets, "overlap"])))
        case _:
            return OfflineStep(say=draw(TEXTS))


@st.composite
def edges(draw: st.DrawFn, target: str, regions: list[str]) -> Edge:
    gates = [st.none()]
    if "notes" in regions:
        gates.append(st.builds(Gate, require_regions=st.just(("notes",)), max_attempts=st.integers(1, 2)))
    if "todo" in regions:
        gates.append(st.builds(Gate, require_no_open_items=st.just("todo"), max_attempts=st.integers(1, 2)))
    if "log" in regions:
        gates.append(st.builds(Gate, require_region_updated=st.just("log"), max_attempts=st.integers(1, 2)))
    condition = draw(st.sampled_from(["always", "llm_choice", "error", "max_iterations"]))
    hint = draw(TEXTS.filter(str.strip)) if condition == "llm_choice" else None
    transform = draw(st.sampled_from(["direct", "clear", "compact"]))
    return Edge(target, condition, hint, transform, gate=draw(st.one_of(gates)))


@st.composite
def stages(draw: st.DrawFn, name: str, names: list[str], regions: list[str]) -> Stage:
    tools = draw(st.lists(st.sampled_from(TOOLS), unique=True, max_size=6))
    targets = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    policy = st.lists(steps(tools, regions, targets), max_size=5).map(tuple)
    some = st.lists(st.sampled_from(regions), unique=True, max_size=1) if regions else st.just([])
    fan_out = FanOut(worker_stage="worker", max_attempts=1) if draw(st.integers(0, 9)) == 9 else None
    return Stage(
        name,
        mode="fan_out" if fan_out else "autonomous",
        fan_out=fan_out,
        system_prompt=draw(st.none() | TEXTS),
        available_tools=tuple(tools),
        max_iterations=draw(st.none() | st.integers(1, 8)),
        max_revisits=draw(st.integers(0, 2)),
        transitions=draw(st.sampled_from([None, tuple([draw(edges(target, regions)) for target in targets])])),
        allow_complete=draw(st.booleans()),
        context=StageContext(reset=tuple(draw(some)), hide=tuple(draw(some))),
        require_output=draw(st.booleans()) if "submit_output" in tools else False,
        output=draw(st.none() | st.just(OutputSpec(schema={"type": "object"}))),
        offline=draw(st.none() | policy),
    )


@st.composite
def blueprints(draw: st.DrawFn) -> Blueprint:
    """Any blueprint of a few stages that run by themselves; loops end, since a stage may be entered so often only."""
    declared = draw(st.lists(st.sampled_from(REGIONS), unique=True, max_size=4))
    regions = [Region("task", kind="pinned", seed=CallerSeed("task")), *[draw(REGION[name]) for name in declared]]
    names = list(NAMES[: draw(st.integers(1, len(NAMES)))])
    made = [draw(stages(name, names, declared)) for name in names]
    worker = Stage("worker", allow_as_worker=True, available_tools=("submit_output",), transitions=(), max_revisits=0)
    drawn = Blueprint("drawn", (*made, worker), regions=tuple(regions))
    assume(not [finding for finding in validate(drawn) if finding.severity == "error"])
    return drawn


async def ended(made: Blueprint, folder: Path) -> tuple[Outcome, list[Any]]:
    async with swarm_of(offline()) as swarm:
        run = await swarm.spawn(made, task="Say what a.txt is about.", workdir=folder)
        outcome = await run.result()
        return outcome, payloads(events_of(swarm, run), "InferenceFailed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("work")
    (made / "a.txt").write_text("The harbour is closed. Boats wait outside of it.")
    return made


@given(made=blueprints())
async def test_any_blueprint_comes_to_its_end_or_is_refused_for_want_of_a_policy(folder: Path, made: Blueprint):
    outcome, failures = await ended(made, folder)
    assert {failure.error for failure in failures} <= {"OfflinePolicyMissing"}
    assert outcome.status == "complete" or failures or stopped_by_its_own_limits(made, outcome)


def stopped_by_its_own_limits(made: Blueprint, outcome: Outcome) -> bool:
    """Say whether it went round as often as the blueprint lets it, or was cut off where the blueprint says."""
    limited = any(stage.max_iterations is not None for stage in made.stages)
    return "entered as often as it may be" in outcome.reason or (limited and "max_iterations_hit" in outcome.flags)
