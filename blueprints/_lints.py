"""What is worth knowing about a blueprint that loads, as far as no model, no price and no tool has to be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.blueprints._edges import is_protected
from shoal.blueprints._graph import lint_graph
from shoal.blueprints._model import ALWAYS_REGIONS, CallerSeed, CommandSeed, Edge, Region, Stage, ToolsSeed
from shoal.blueprints._names import Names, offers
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path
from shoal.blueprints._tools import (
    ASKING,
    CONTEXT_WRITING,
    FILE_READING,
    ITEM_WRITING,
    MODIFYING,
    can_write,
    result_regions,
    routed_regions,
    stage_tools,
    tool_name,
)

_ORDERS_ONLY = frozenset({"sliding_window", "hashmap", "checklist", "custom"})
_BROAD_SHARE = 0.02


def lint(names: Names, report: Report, written: Callable[[Path], bool]) -> None:
    """Add warnings and notes. *written* says whether a key stands in the file; true for a value built in Python."""
    routed = frozenset[str]().union(*map(routed_regions, names.blueprint.stages))
    writers = [stage for stage in names.blueprint.stages if _may_write(stage)]
    for where, region in names.regions():
        moves = _moves(names, region, routed)
        _lint_volatility(where, region, moves, report, written)
        _lint_required(names, where, region, writers, report)
        _lint_seed((*where, "seed"), region, report)
    for stage in names.blueprint.stages:
        path = ("stages", stage.name)
        _lint_defaults(names, path, stage, report, written)
        _lint_tools(names, path, stage, report)
        _lint_output(path, stage, report)
        _lint_ways_out(names, path, stage, report)
    _lint_blueprint(names, report)
    lint_graph(names, report)


# --- regions


def _lint_volatility(path: Path, region: Region, moves: str, report: Report, written: Callable[[Path], bool]) -> None:
    if region.volatility == "grows" and region.kind in _ORDERS_ONLY:
        message = f"`grows` cuts no `{region.kind}` region into chunks; it only says where the block stands"
        report.warning("grows-only-orders", (*path, "volatility"), message)
    if region.volatility == "stable" and moves:
        message = f"`{region.name}` is `stable` and {moves}: each change makes all behind it uncached; write `grows`"
        report.warning("unstable-prefix", (*path, "volatility"), message)
    if region.name != "stage_instructions" and region.kind != "sliding_window" and not written((*path, "volatility")):
        broad = region.budget is not None and region.budget > _BROAD_SHARE
        if moves or broad:
            why = moves or f"may hold {region.budget:.0%} of the window"
            message = f"`{region.name}` {why}: without `volatility` all of it is sent anew after each change; write one"
            report.warning("volatility-undeclared", path, message, at="key")


def _lint_required(names: Names, path: Path, region: Region, writers: Sequence[Stage], report: Report) -> None:
    if region.required and not isinstance(region.seed, CallerSeed) and not _is_filled(names, region, writers):
        message = f"`{region.name}` is required, and no stage that sees it can write it; give one a tool or a route"
        report.warning("required-region-unenforceable", (*path, "required"), message)


def _moves(names: Names, region: Region, routed: frozenset[str]) -> str:
    """Return what keeps changing *region*; empty where nothing known does."""
    if region.name in routed:
        return "takes routed results"
    if names.blueprint.file_tracking is not None and names.blueprint.file_tracking.region == region.name:
        return "keeps tracked files"
    if getattr(region.seed, "refresh", "once") == "each_stage":
        return "is seeded again on every stage entry"
    return ""


def _is_filled(names: Names, region: Region, writers: Sequence[Stage]) -> bool:
    tracked = names.blueprint.file_tracking
    if tracked is not None and tracked.region == region.name:
        return True
    return any(
        names.sees(stage, region.name) and (can_write(stage, region) or bool(stage.available_connectors))
        for stage in writers
    )


def _may_write(stage: Stage) -> bool:
    """Say whether *stage* can fill any region at all."""
    return bool(stage.available_connectors or routed_regions(stage)) or offers(stage, CONTEXT_WRITING | ITEM_WRITING)


def _lint_seed(path: Path, region: Region, report: Report) -> None:
    seed = region.seed
    if isinstance(seed, CommandSeed):
        message = f"runs {shown(seed.command)} before the first inference; it needs the user's `safe_commands`"
        report.note("command-seed", path, message)
    if isinstance(seed, ToolsSeed):
        calls = listed(call.name for call in seed.calls)
        report.note("tool-seed", path, f"calls {calls} before the first inference, under the run's permissions")
    if getattr(seed, "refresh", "once") == "each_stage":
        report.note("refreshing-seed", path, f"`{region.name}` is filled again on every stage entry")


# --- stages


def _lint_defaults(names: Names, path: Path, stage: Stage, report: Report, written: Callable[[Path], bool]) -> None:
    if not written((*path, "mode")):
        report.warning("stage-missing-mode", path, f"`{stage.name}` writes no `mode`, so it is `autonomous`", at="key")
    if stage.model is None and names.blueprint.model is None:
        message = f"`{stage.name}` names no `model`, and neither does `[defaults]`: the first provider's default serves"
        report.warning("stage-missing-model", path, message, at="key")
    if stage.max_iterations is None and stage.mode != "fan_out":
        message = f"`{stage.name}` has no `max_iterations`: only the host's limit holds"
        report.warning("stage-missing-max-iterations", path, message, at="key")


def _lint_tools(names: Names, path: Path, stage: Stage, report: Report) -> None:
    given, tools = (*path, "available_tools"), stage_tools(stage)
    allowed = {
        tool_name(name) for table in (stage.tool_permissions, names.blueprint.tool_permissions) for name in table
    }
    if "shell" in tools and "shell" not in allowed:
        message = "`shell` is given without a permission, so each line is asked for; write one in `tool_permissions`"
        report.warning("implicit-shell-policy", given, message)
    asking = [name for name in tools if name in ASKING]
    if asking and stage.mode not in {"interactive", "interactive_points"} and not stage.allow_blocking_tools:
        message = (
            f"{listed(asking)} wait for a person in a stage that runs by itself; write `allow_blocking_tools = true`"
        )
        report.warning("blocking-tool-in-autonomous-stage", given, message)
    routes = result_regions(stage) - frozenset(ALWAYS_REGIONS)
    if routes and offers(stage, FILE_READING) and "context_read" not in tools:
        message = f"results go to {listed(sorted(routes))}, and the stage has no `context_read`; add it"
        report.warning("routing-without-region-read", (*path, "tool_routing"), message, at="key")


def _lint_output(path: Path, stage: Stage, report: Report) -> None:
    if stage.output is not None and not stage.require_output:
        message = "the output has a shape that nobody must produce; write `require_output = true`"
        report.warning("output-shape-not-required", (*path, "output"), message, at="key")
    elif stage.mode == "output" and not stage.require_output:
        message = "the model may end without an answer; write `require_output = true` (in Python it is not implied)"
        report.warning("output-stage-owes-nothing", (*path, "require_output"), message, at="key")
    if stage.mode == "output" and offers(stage, MODIFYING):
        message = f"an `output` stage can modify files; leave {listed(sorted(MODIFYING & set(stage_tools(stage))))} out"
        report.warning("output-stage-can-modify", (*path, "available_tools"), message)


def _lint_ways_out(names: Names, path: Path, stage: Stage, report: Report) -> None:
    edges = names.edges(stage)
    fails_all = stage.fan_out is not None and stage.fan_out.on_worker_failure == "fail_all"
    if fails_all and not any(edge.condition in {"error", "dead_end"} for edge in edges):
        message = "one worker's failure fails the stage, and no edge for `error` or `dead_end` takes it up; add one"
        report.warning("fanout-no-escape", (*path, "on_worker_failure"), message)
    for edge in stage.transitions or ():
        for region in _paraphrased(names, stage, edge):
            message = f"the transform may summarise `{region}`, which is required; write `summarizable = false` there"
            report.warning("compact-summarizes-deliverable", (*path, "transitions", edge.target, "transform"), message)


def _paraphrased(names: Names, stage: Stage, edge: Edge) -> list[str]:
    """Return the required regions that the transform of *edge* would summarise."""
    if edge.transform == "custom" and edge.transform_config is not None:
        candidates = edge.transform_config.compact
    else:
        candidates = tuple(names.declared) if edge.transform == "compact" else ()
    found = [names.region(stage, name) for name in candidates]
    regions = [entry[1] for entry in found if entry is not None]
    return [r.name for r in regions if r.required and r.summarizable and not is_protected(r)]


# --- the whole


def _lint_blueprint(names: Names, report: Report) -> None:
    blueprint = names.blueprint
    if blueprint.output is not None and not any(stage.require_output for stage in blueprint.stages):
        message = "the output has a shape that no stage must produce; write `require_output = true` in one"
        report.warning("output-shape-not-required", ("agent", "output"), message, at="key")
    instructed = any(stage.system_prompt and stage.prompt_as == "instructions" for stage in blueprint.stages)
    if blueprint.regions and instructed and "stage_instructions" not in names.declared:
        message = (
            "no region `stage_instructions` is declared, so instructions go into another pinned region: they are "
            "charged to it, have no size of their own, and a stage change rewrites all behind it; add "
            '`stage_instructions = { kind = "pinned", budget = "3%" }`'
        )
        report.warning("stage-instructions-undeclared", ("context", "regions"), message, at="key")
    if "project_files" in blueprint.components and "injection_shield" not in blueprint.components:
        message = "prompts show files of the project and do not say that those cannot change the agent's role; "
        report.warning("project-files-unshielded", ("components", "use"), f"{message}use `injection_shield` too")
    if "bindings" in blueprint.components:
        message = "`bindings` names the run and its model, so that no two runs share what stands behind it in a cache"
        report.note("bindings-end-shared-prefix", ("components", "use"), message)
    if blueprint.read_paths:
        message = "asks to read outside the working directory; it counts only where the user grants it"
        report.note("read-paths-declared", ("read_paths", "allow"), message, at="key")
    if blueprint.safe_tools or blueprint.safe_shell:
        message = "asks to run these without a question; it counts only where the user allows it"
        report.note("safe-commands-declared", ("safe_commands",), message, at="key")
