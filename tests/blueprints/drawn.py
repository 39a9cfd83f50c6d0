"""Blueprints to write and read: one that uses every field, and a strategy that draws valid ones."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from hypothesis import strategies as st

from shoal.blueprints import (
    ALWAYS_REGIONS,
    Blueprint,
    BlueprintTransform,
    Budget,
    CallerSeed,
    ChildSupervision,
    CommandSeed,
    Edge,
    FanOut,
    FilesSeed,
    FileTracking,
    Gate,
    GlobSeed,
    InteractionPoint,
    Lanes,
    LaneSettings,
    LiteralSeed,
    ModelChoice,
    ModelSettings,
    Nudge,
    Observations,
    OfflineStep,
    OutputSpec,
    Region,
    Repetition,
    Route,
    ScriptSeed,
    Stage,
    StageContext,
    ToolRouting,
    ToolSeedCall,
    ToolsSeed,
    TransformConfig,
    TransformMapping,
)

EVERYTHING = Blueprint(
    name="everything",
    version="1.2.3",
    description='Uses every field once.\n\nOver lines, with "quotes" and a \\ in it.',
    entry_stage="collect",
    model=ModelSettings((ModelChoice("openai", "mid"), ModelChoice("ollama", "llama3:8b"), ModelChoice("local"))),
    max_child_depth=2,
    tool_list="run",
    nudge=Nudge(True, 2, "Go on with {stage}."),
    output=OutputSpec("markdown", "Short.", None, "# Title", "scripts/check.py"),
    tool_permissions={"shell": "ask", "write_file": "deny"},
    safe_tools=("read_file",),
    safe_shell=("git status", "make"),
    read_paths=("~/notes", "glob:/usr/share/*.txt"),
    lanes=Lanes(
        LaneSettings(ModelChoice("openai", "small"), 1200, 30.0, 1, 0.0, "Sum up."),
        LaneSettings(max_tokens=64),
        LaneSettings(timeout_s=7.5, retries=0),
    ),
    budget=Budget(Decimal("2.50"), 1_000_000, 3600.0, "ignore", "finish"),
    repetition=Repetition(False, 4, 12),
    file_tracking=FileTracking("pages", False, False, 4000),
    observations=Observations("chat", 3, 50_000, 90_000, 1, 0, 2),
    components=("date", "environment"),
    transforms=(
        BlueprintTransform(
            "everything",
            "worker",
            (TransformMapping("plan", "brief"), TransformMapping("facts", "facts", "extract", ("names", "dates"))),
        ),
    ),
    dynamic_tools=True,
    batch_tool_hint=False,
    shell_hint=True,
    regions=(
        Region("task", "pinned", max_tokens=2000, seed=CallerSeed("task"), volatility="stable", summarizable=False),
        Region(
            "facts",
            "hashmap",
            0.075,
            8000,
            500,
            LiteralSeed(""),
            required=True,
            required_message="Fill {region} first.",
            description="What is known",
            describe_in_prompt=True,
            admission="reject",
            accepts=("text/plain", "image/*"),
            max_stored=3,
            max_entries=60,
        ),
        Region(
            "plan",
            "temporary",
            0.1,
            seed=FilesSeed(("PLAN.md", "NOTES.md"), "each_stage"),
            placement="tail",
            shed_to=0.25,
        ),
        Region("pages", "hashmap", seed=GlobSeed("docs/**", "each_stage")),
        Region("log", "compacting", 0.2, compact_at=0.7, threshold_tokens=30_000, volatility="grows"),
        Region("past", "compact_history", source_region="log"),
        Region(
            "brain", "custom", script="scripts/brain.py", pinned=True, seed=ScriptSeed("seeds/plan.py", "each_stage")
        ),
        Region(
            "machine", seed=ToolsSeed((ToolSeedCall("system_info"), ToolSeedCall("which_command", {"command": "git"})))
        ),
        Region("history", seed=CommandSeed("git log -3", "each_stage")),
        Region("clock", seed=ToolsSeed((ToolSeedCall("current_time"),), "each_stage")),
        Region("conversation", "sliding_window", max_items=None, strategy="bulk", overflow=20, compact_count=5),
        Region("todo", "checklist"),
    ),
    stages=(
        Stage(
            name="collect",
            mode="interactive_points",
            model=ModelSettings(
                (ModelChoice("openai", "big"),),
                False,
                120.0,
                4096,
                0.3,
                {"top_p": 0.9, "stop": ["END"], "deep": {"on": True}},
            ),
            system_prompt="Collect.\nThen stop.",
            prompt_as="nudge",
            description="Turns commits into facts",
            available_tools=("bash", "write_file", "read_file", "context_write", "ask_user_text", "submit_output"),
            available_connectors=("github",),
            deferred_tools=("read_file", "github"),
            required_tools=("ask_user_text",),
            tool_permissions={"bash": "deny"},
            tool_routing=ToolRouting(
                "log",
                False,
                4000,
                {"read_file": Route("log", 20_000), "grep": Route("plan"), "list_dir": Route(None, 500)},
                {"read_file": 9000},
            ),
            output_routing={"image/*": "facts"},
            max_iterations=20,
            max_revisits=0,
            transitions=(
                Edge(
                    "write",
                    "always",
                    "All is recorded",
                    "custom",
                    TransformConfig(("facts",), ("log",), ("plan",), "Keep the numbers."),
                    Gate(True, "facts", ("bash",), ("facts",), "plan", "todo", "Not yet.", 1),
                ),
                Edge("collect", "stuck", None, "clear", None, None, 12, 2.5, 3, 40),
            ),
            transition_prompt="Where to?",
            allow_complete=True,
            requires_children=True,
            accepts_messages=False,
            allow_blocking_tools=True,
            allow_as_worker=True,
            nudge=Nudge(False),
            context=StageContext(
                (Region("log"), Region("plan", volatility="grows"), Region("facts", "hashmap")),
                ("conversation",),
                ("todo",),
                "fresh",
                Observations("eval"),
            ),
            output=OutputSpec("json", None, {"type": "object", "properties": {"z": {}, "a": {"type": "string"}}}),
            require_output=True,
            interaction_points=(
                InteractionPoint(
                    "approve",
                    "Good?",
                    False,
                    "multiple_choice",
                    ("yes", "no", "stop"),
                    {"no": "Once more."},
                    ("stop",),
                    ("no",),
                    "ask",
                    "plan",
                ),
            ),
            hooks={"on_stage_enter": "hooks/enter.py"},
            seeds={"brief": "plan"},
            supervision=ChildSupervision("transient", 3, 60.0),
            offline=(
                OfflineStep(call="read_file", args={"path": "{task}"}),
                OfflineStep(call="read_file", args={"path": "{item}"}, for_each="result(1)", pages=3),
                OfflineStep(extract="facts", sentences=5, into="submit_output"),
                OfflineStep(say="{result(2)}"),
                OfflineStep(route="overlap"),
            ),
            batch_tool_hint=True,
            shell_hint=False,
        ),
        Stage(
            name="spread",
            mode="fan_out",
            fan_out=FanOut(None, "collect", None, "write", "log", 4, 12, 1, "fail_all", "One item a file."),
            transitions=(Edge("write", "error"),),
        ),
        Stage(name="ask", mode="fan_out", fan_out=FanOut(worker_agent="digest"), transitions=(Edge("write"),)),
        Stage(name="find", mode="fan_out", fan_out=FanOut(worker_query="log files"), transitions=(Edge("write"),)),
        Stage(name="write", mode="output", require_output=True, transitions=()),
    ),
)

# --- strategies

T = TypeVar("T")
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
FULL = TEXT.map(lambda text: text if text.strip() else f"x{text}")
NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8)
PATHS = st.sampled_from(["a.md", "docs/b c.md", 'q"uote', "é/*"])
COUNTS = st.integers(1, 1_000_000)
SHARES = st.floats(1e-9, 1.0)
SECONDS = st.floats(1e-3, 1e9)
TOOLS = ("shell", "write_file", "read_file", "context_write", "todo_add", "list_dir")
ATOMS = TEXT | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
FREE = st.dictionaries(TEXT, JSON, max_size=3)
REFRESH = st.sampled_from(["once", "each_stage"])
CALLS = st.builds(ToolSeedCall, FULL, FREE)
SEEDS = st.one_of(
    st.none(),
    st.builds(CallerSeed, FULL),
    st.builds(LiteralSeed, TEXT),
    st.builds(FilesSeed, st.lists(PATHS, min_size=1, max_size=2).map(tuple), REFRESH),
    st.builds(GlobSeed, PATHS, REFRESH),
    st.builds(CommandSeed, FULL, REFRESH),
    st.builds(ScriptSeed, st.just("s.py"), REFRESH),
    st.builds(ToolsSeed, st.lists(CALLS, min_size=1, max_size=2).map(tuple), REFRESH),
)
CHOICES = st.builds(ModelChoice, NAMES, st.none() | FULL)
SETTINGS = st.builds(
    ModelSettings,
    st.lists(CHOICES, max_size=2).map(tuple),
    st.booleans(),
    st.none() | SECONDS,
    st.none() | COUNTS,
    st.none() | st.floats(0, 2),
    FREE.filter(lambda free: not free.keys() & {"temperature", "max_tokens", "max_output_tokens"}),
)
NUDGES = st.builds(Nudge, st.none() | st.booleans(), st.none() | st.integers(0, 5), st.none() | FULL)
OUTPUTS = st.builds(
    OutputSpec, st.none() | FULL, st.none() | FULL, st.none() | FREE, st.none() | FULL, st.none() | st.just("v.py")
)
KNOBS = st.sampled_from(
    [
        None,
        Observations(),
        Observations("chat"),
        Observations("eval", 5, 10, 20, 5, 0, 1),
        Observations(None, 9, 7, 7, 0, 3, 2),
    ]
)
PERMISSIONS = st.sampled_from(["allow", "ask", "deny"])
MIMES = st.sampled_from(["text/plain", "image/*", "*/*", "application/x-thing+json"])
OF_KIND: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "temporary": {"shed_to": SHARES},
    "sliding_window": {
        "shed_to": SHARES,
        "max_items": st.none() | COUNTS,
        "strategy": st.sampled_from(["per_item", "bulk", "compact"]),
        "overflow": COUNTS,
        "compact_count": COUNTS,
    },
    "compacting": {"shed_to": SHARES, "compact_at": SHARES, "threshold_tokens": st.none() | COUNTS},
    "compact_history": {"source_region": st.just("source")},
    "hashmap": {"max_entries": st.none() | COUNTS},
    "custom": {"script": st.just("scripts/r.py"), "pinned": st.booleans()},
    "pinned": {},
    "clearable": {},
    "checklist": {},
}


class Draw:
    """A draw function with its type."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def __call__(self, strategy: st.SearchStrategy[T]) -> T:
        return self._draw(strategy)

    def some(self, options: tuple[T, ...] | list[T], most: int = 3) -> tuple[T, ...]:
        """Return a few different ones of *options*, in any order."""
        if not options:
            return ()
        return tuple(self(st.lists(st.sampled_from(list(options)), max_size=most, unique=True)))


def region(draw: Draw, name: str) -> Region:
    kind = draw(st.sampled_from(sorted(OF_KIND)))
    fields = {key: draw(strategy) for key, strategy in OF_KIND[kind].items()}
    volatility = draw(st.sampled_from(["stable", "grows", "rewritten"]))
    may_move = volatility == "rewritten" and kind != "sliding_window" and name not in ALWAYS_REGIONS
    return Region(
        name,
        kind,  # type: ignore[arg-type]
        draw(st.none() | SHARES),
        draw(st.none() | COUNTS),
        draw(st.none() | COUNTS),
        draw(SEEDS),
        draw(st.booleans()),
        draw(st.none() | FULL),
        draw(st.booleans()),
        draw(st.none() | TEXT),
        draw(st.booleans()),
        volatility,  # type: ignore[arg-type]
        draw(st.sampled_from([None, "tail"])) if may_move else None,
        draw(st.sampled_from(["evict", "reject"])),
        draw(st.none() | st.lists(MIMES, min_size=1, max_size=2).map(tuple)),
        draw(st.none() | st.integers(0, 9)),
        **fields,
    )


def layout(draw: Draw) -> tuple[Region, ...]:
    """Return a layout with the regions that others refer to, among more."""
    names = draw(st.lists(NAMES | st.sampled_from(["task", *ALWAYS_REGIONS]), max_size=3, unique=True))
    fixed = [Region("source", "compacting"), Region("files", "hashmap"), Region("items", "checklist")]
    return tuple(
        draw(st.permutations([*fixed, *(region(draw, n) for n in names if n not in {"source", "files", "items"})]))
    )


def stages(draw: Draw, names: list[str], base: tuple[Region, ...]) -> tuple[Stage, ...]:
    """Return a stage for each of *names*, each with a way to the next one and to the last."""
    made = [stage(draw, index, names, base) for index in range(len(names))]
    return tuple(made)


def stage(draw: Draw, index: int, names: list[str], base: tuple[Region, ...]) -> Stage:
    last = index == len(names) - 1
    mode = draw(
        st.sampled_from(["autonomous", "interactive", "interactive_points", "output"] + ([] if last else ["fan_out"]))
    )
    own = layout(draw) if draw(st.booleans()) else None
    declared = [one.name for one in base]
    hidden = draw.some([name for name in declared if name not in ALWAYS_REGIONS])
    seen = [one.name for one in own if own is not None] if own is not None else declared
    visible = [name for name in seen if name not in hidden] + list(ALWAYS_REGIONS)
    tools = (*draw.some(TOOLS, 6), "submit_output")
    return Stage(
        name=names[index],
        mode=mode,  # type: ignore[arg-type]
        model=draw(st.none() | SETTINGS),
        system_prompt=draw(st.none() | TEXT),
        prompt_as=draw(st.sampled_from(["instructions", "nudge"])),
        description=draw(st.none() | TEXT),
        available_tools=tools,
        available_connectors=draw(st.lists(FULL, max_size=1).map(tuple)),
        required_tools=draw.some(tools),
        tool_permissions={name: draw(PERMISSIONS) for name in draw.some(tools)},
        tool_routing=draw(st.none() | st.just(routing(draw, visible))),
        output_routing={draw(MIMES): name for name in draw.some(declared, 1)},
        max_iterations=draw(st.none() | COUNTS),
        max_revisits=draw(st.integers(0, 9)),
        transitions=edges(draw, index, names, declared, tools),
        transition_prompt=draw(st.none() | FULL),
        allow_complete=draw(st.booleans()),
        requires_children=draw(st.booleans()),
        accepts_messages=draw(st.booleans()),
        allow_blocking_tools=draw(st.booleans()),
        allow_as_worker=True,
        nudge=draw(st.none() | NUDGES),
        context=StageContext(
            own, draw.some(declared), hidden, draw(st.sampled_from(["inherit", "fresh"])), draw(KNOBS)
        ),
        output=draw(st.none() | OUTPUTS),
        require_output=draw(st.booleans()),
        fan_out=fan_out(draw, names, declared) if mode == "fan_out" else None,
        interaction_points=points(draw, declared) if mode == "interactive_points" else (),
        hooks=draw(st.sampled_from([{}, {"on_error": "h.py", "on_completion": "a/b.py"}])),
        seeds={draw(FULL): name for name in draw.some(declared, 1)},
        supervision=ChildSupervision(
            draw(st.sampled_from([None, "permanent", "transient", "temporary"])),
            draw(st.none() | st.integers(0, 9)),
            draw(st.none() | SECONDS),
        ),
        offline=draw(st.none() | st.just(policy(draw, declared))),
        batch_tool_hint=draw(st.none() | st.booleans()),
        shell_hint=draw(st.none() | st.booleans()),
    )


def routing(draw: Draw, visible: list[str]) -> ToolRouting:
    region_names = st.none() | st.sampled_from(visible)
    rules = {name: Route(draw(region_names), draw(st.none() | COUNTS)) for name in draw.some([*TOOLS, "x y"])}
    ceilings = {name: draw(COUNTS) for name in draw.some(TOOLS)}
    return ToolRouting(draw(region_names), draw(st.booleans()), draw(st.none() | COUNTS), rules, ceilings)


def edges(
    draw: Draw, index: int, names: list[str], declared: list[str], tools: tuple[str, ...]
) -> tuple[Edge, ...] | None:
    if index == len(names) - 1:
        return draw(st.sampled_from([None, ()]))
    targets = dict.fromkeys([*draw.some(names), names[index + 1], names[-1]])
    return tuple(edge(draw, target, declared, tools) for target in draw(st.permutations(list(targets))))


def edge(draw: Draw, target: str, declared: list[str], tools: tuple[str, ...]) -> Edge:
    condition = draw(st.sampled_from(["always", "llm_choice", "error", "max_iterations", "stuck", "dead_end"]))
    transform = draw(st.sampled_from(["direct", "clear", "compact", "custom"]))
    order = draw(st.permutations(declared))
    config = TransformConfig(tuple(order[:1]), tuple(order[1:2]), tuple(order[2:3]), draw(st.none() | FULL))
    gate = Gate(
        "write_file" in tools and draw(st.booleans()),
        draw(st.none() | st.sampled_from(declared)),
        draw.some(tools),
        draw.some(declared),
        draw(st.none() | st.sampled_from(declared)),
        draw(st.sampled_from([None, "items"])),
        draw(st.none() | FULL),
        draw(st.integers(0, 9)),
    )
    stuck = condition == "stuck"
    return Edge(
        target,
        condition,  # type: ignore[arg-type]
        draw(st.none() | FULL),
        transform,  # type: ignore[arg-type]
        config if transform == "custom" or draw(st.booleans()) else None,
        draw(st.none() | st.just(gate)),
        draw(COUNTS) if stuck else None,
        draw(st.none() | SECONDS) if stuck else None,
        draw(st.none() | COUNTS) if stuck else None,
        draw(st.none() | COUNTS) if stuck else None,
    )


def fan_out(draw: Draw, names: list[str], declared: list[str]) -> FanOut:
    worker = draw(st.sampled_from(["worker_agent", "worker_stage", "worker_query"]))
    return FanOut(
        merge_stage=draw(st.none() | st.just(names[-1])),
        results_region=draw(st.sampled_from(["conversation", *declared])),
        max_workers=draw(st.integers(0, 40)),
        max_items=draw(st.none() | COUNTS),
        max_attempts=draw(st.integers(0, 9)),
        on_worker_failure=draw(st.sampled_from(["continue", "fail_all"])),
        split_prompt=draw(TEXT),
        **{worker: draw(st.sampled_from(names)) if worker == "worker_stage" else "some/where"},
    )


def points(draw: Draw, declared: list[str]) -> tuple[InteractionPoint, ...]:
    names = draw(st.lists(FULL, max_size=2, unique=True))
    return tuple(point(draw, name, declared) for name in names)


def point(draw: Draw, name: str, declared: list[str]) -> InteractionPoint:
    style = draw(st.sampled_from(["free_text", "multiple_choice", "confirm"]))
    options = tuple(draw(st.lists(FULL, min_size=2, max_size=3, unique=True))) if style == "multiple_choice" else ()
    some = (lambda: draw.some(options)) if options else (lambda: tuple(draw(st.lists(FULL, max_size=2))))
    return InteractionPoint(
        name,
        draw(FULL),
        draw(st.booleans()),
        style,  # type: ignore[arg-type]
        options,
        {answer: draw(FULL) for answer in some()},
        some(),
        some(),
        draw(st.sampled_from(["auto_approve", "ask"])),
        draw(st.none() | st.sampled_from(declared)),
    )


def policy(draw: Draw, declared: list[str]) -> tuple[OfflineStep, ...]:
    region_name = draw(st.sampled_from(["source", "files", "items"]))
    return (
        OfflineStep(call="submit_output", args={"content": "{task}", "more": [1, 2.5, True, {"a": "{{x}}"}]}),
        OfflineStep(
            call="submit_output",
            for_each=draw(st.sampled_from(["result(1)", f"region({region_name})"])),
            args={"content": "{item} of {task}"},
            pages=draw(COUNTS),
        ),
        OfflineStep(extract=region_name, sentences=draw(COUNTS), into=draw(st.sampled_from([None, "submit_output"]))),
        OfflineStep(say=draw(st.sampled_from(["", "{result(1)}", "one\ntwo"]))),
        OfflineStep(route="overlap"),
    )


@st.composite
def blueprints(draw_: Callable[..., Any]) -> Blueprint:
    """Valid blueprints that use any of their fields."""
    draw = Draw(draw_)
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    name = draw(FULL)
    base = layout(draw)
    region_names = st.sampled_from([one.name for one in base])
    extract = st.builds(TransformMapping, region_names, region_names, st.just("extract"), st.just(("a", "b c")))
    plain = st.builds(TransformMapping, region_names, region_names, st.sampled_from(["direct", "summarize"]))
    lane = st.builds(
        LaneSettings,
        st.none() | CHOICES,
        st.none() | COUNTS,
        st.none() | SECONDS,
        st.none() | st.integers(0, 5),
        st.none() | st.floats(0, 2),
        st.none() | FULL,
    )
    return Blueprint(
        name,
        stages(draw, names, base),
        draw(FULL),
        draw(TEXT),
        base,
        draw(st.sampled_from([None, names[0]])),
        draw(st.none() | SETTINGS),
        draw(st.none() | st.integers(0, 9)),
        draw(st.sampled_from(["stage", "run"])),
        draw(st.none() | NUDGES),
        draw(st.none() | OUTPUTS),
        {tool: draw(PERMISSIONS) for tool in draw.some([*TOOLS, "github__search"])},
        draw.some(TOOLS),
        tuple(draw(st.lists(FULL, max_size=2))),
        draw.some(["~/notes", "glob:/usr/*", "regex:^/etc/.+", "../x"]),
        Lanes(
            draw(lane),
            draw(lane),
            LaneSettings(timeout_s=draw(st.none() | SECONDS), retries=draw(st.none() | st.integers(0, 5))),
        ),
        Budget(
            draw(st.none() | st.decimals(0, 10**9, places=25) | st.decimals(0, 10, places=2)),
            draw(st.none() | COUNTS),
            draw(st.none() | SECONDS),
            draw(st.sampled_from(["refuse", "ignore"])),
            draw(st.sampled_from(["pause", "finish"])),
        ),
        draw(st.builds(Repetition, st.booleans(), COUNTS, COUNTS)),
        draw(st.none() | st.builds(FileTracking, st.just("files"), st.booleans(), st.booleans(), st.none() | COUNTS)),
        draw(KNOBS),
        tuple(draw(st.lists(FULL, max_size=2))),
        tuple(
            draw(
                st.lists(
                    st.builds(
                        BlueprintTransform, st.just(name), FULL, st.lists(extract | plain, max_size=2).map(tuple)
                    ),
                    max_size=2,
                )
            )
        ),
        draw(st.booleans()),
        draw(st.none() | st.booleans()),
        draw(st.none() | st.booleans()),
    )
