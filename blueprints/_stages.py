"""What must hold for stages: what they name exists, what they owe they can give, and their mode fits their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shoal.blueprints._edges import check_edges
from shoal.blueprints._model import ALWAYS_REGIONS, Blueprint, InteractionPoint, Stage
from shoal.blueprints._names import Names, check_region, check_stage
from shoal.blueprints._offline import check_offline
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path
from shoal.blueprints._tools import COMPONENTS, OWED, stage_tools, tool_name

_WORKERS = ("worker_agent", "worker_stage", "worker_query")


def check_stages(names: Names, report: Report) -> None:
    """Add what is wrong with the stages of a blueprint."""
    blueprint = names.blueprint
    if blueprint.entry_stage is not None:
        check_stage(names, ("agent", "entry_stage"), blueprint.entry_stage, report)
    _check_twice_table(("tool_permissions",), blueprint.tool_permissions, report)
    _check_twice_list(("safe_commands", "tools"), blueprint.safe_tools, report)
    for stage in blueprint.stages:
        path: Path = ("stages", stage.name)
        _check_tools(names, path, stage, report)
        _check_names(names, path, stage, report)
        _check_routing(names, path, stage, report)
        _check_fan_out(names, path, stage, report)
        _check_points(path, stage, report)
        check_edges(names, path, stage, report)
        check_offline(names, path, stage, report)


def _check_twice_table(path: Path, table: Mapping[str, object], report: Report) -> None:
    """Two spellings of one tool in a table could contradict each other."""
    seen: dict[str, str] = {}
    for name in table:
        first = seen.setdefault(tool_name(name), name)
        if first != name:
            message = f"`{name}` and `{first}` are the same tool; keep one of them"
            report.error("tool-twice", (*path, name), message, at="key")


def _check_twice_list(path: Path, tools: Iterable[str], report: Report) -> None:
    seen: dict[str, str] = {}
    for index, name in enumerate(tools):
        first = seen.get(tool_name(name))
        if first is not None:
            report.warning("tool-twice", (*path, index), f"`{name}` stands in the list already, as `{first}`; drop it")
        seen.setdefault(tool_name(name), name)


def _check_tools(names: Names, path: Path, stage: Stage, report: Report) -> None:
    tools, given = stage_tools(stage), (*path, "available_tools")
    about = [given, (*path, "available_connectors"), (*path, "mode")]
    _check_twice_list(given, stage.available_tools, report)
    _check_twice_list((*path, "required_tools"), stage.required_tools, report)
    _check_twice_table((*path, "tool_permissions"), stage.tool_permissions, report)
    for index, name in enumerate(stage.required_tools):
        if not names.has_tool(stage, name):
            message = f"`{name}` is required and not among `available_tools`{report.near(name, tools)}; add it there"
            report.error("required-tool-missing", (*path, "required_tools", index), message, about=about)
    for index, name in enumerate(stage.deferred_tools):
        place: Path = (*path, "deferred_tools", index)
        if tool_name(name) in OWED:
            message = f"`{name}` is what this stage cannot do without, so it is never deferred; take it out"
            report.error("deferred-tool-owed", place, message)
        elif not names.has_tool(stage, name):
            message = f"`{name}` is deferred and not among `available_tools`{report.near(name, tools)}; add it there"
            report.error("deferred-tool-missing", place, message, about=about)
    for name in stage.tool_permissions:
        if not names.has_tool(stage, name):
            message = (
                f"`{name}` has a permission, and the stage has no such tool{report.near(name, tools)}; add or drop it"
            )
            report.error("orphan-stage-permission", (*path, "tool_permissions", name), message, at="key", about=about)
    if stage.require_output and "submit_output" not in tools:
        message = "an output is required, and `submit_output` is not among `available_tools`; add it there"
        report.error("output-missing-submit-tool", (*path, "require_output"), message, about=about)


def _check_names(names: Names, path: Path, stage: Stage, report: Report) -> None:
    """Check every region that a stage names outside its edges and routing."""
    for key, name in _regions_of(stage):
        check_region(names, (*path, *key), name, report)
    for index, name in enumerate(stage.context.hide):
        if name in ALWAYS_REGIONS:
            message = f"`{name}` is never hidden; empty it with `reset`, or leave it out"
            report.error("region-always-shown", (*path, "context", "hide", index), message)


def _regions_of(stage: Stage) -> Iterator[tuple[Path, str]]:
    yield from ((("context", "reset", index), name) for index, name in enumerate(stage.context.reset))
    yield from ((("context", "hide", index), name) for index, name in enumerate(stage.context.hide))
    yield from ((("output_routing", pattern), name) for pattern, name in stage.output_routing.items())
    yield from ((("seeds", caller), name) for caller, name in stage.seeds.items())
    if stage.fan_out is not None:
        yield ("results_region",), stage.fan_out.results_region
    for index, point in enumerate(stage.interaction_points):
        if point.document_region is not None:
            yield ("interaction_points", index, "document_region"), point.document_region


def _check_routing(names: Names, path: Path, stage: Stage, report: Report) -> None:
    routing, here = stage.tool_routing, (*path, "tool_routing")
    if routing is None:
        return
    targets: list[tuple[Path, str | None]] = [(("default_region",), routing.default_region)]
    for tool, route in routing.overrides.items():
        targets.append((("overrides", tool, "region"), route.region))
    for key, name in targets:
        if name is not None and not names.sees(stage, name):
            remedy = _remedy(names, stage, name, report)
            message = f"results would go to {shown(name)}, which this stage does not see; {remedy}"
            report.error("routing-into-unseen-region", (*here, *key), message, about=[("context", "regions")])
    _check_twice_table((*here, "overrides"), routing.overrides, report)
    _check_twice_table((*here, "max_result_tokens_per_tool"), routing.max_result_tokens_per_tool, report)
    if not routing.persist and routing.default_region is None and not names.sees(stage, "scratch"):
        message = "`persist = false` sends results to a region `scratch`, which this stage does not see; declare it"
        report.warning("key-without-effect", (*here, "persist"), message, at="key")


def _remedy(names: Names, stage: Stage, name: str, report: Report) -> str:
    if name in stage.context.hide:
        return "take it out of `hide`"
    if name in names.known:
        return f"add it to `[stages.{stage.name}.context.regions]`"
    return f"declare it in `[context.regions]`{report.near(name, names.declared)}"


def _check_fan_out(names: Names, path: Path, stage: Stage, report: Report) -> None:
    fan_out = stage.fan_out
    if fan_out is None:
        return
    named = [key for key in _WORKERS if getattr(fan_out, key) is not None]
    if len(named) != 1:
        message = f"a `fan_out` stage has exactly one of {listed(_WORKERS)}; this one has {listed(named)}"
        report.error("fan-out-worker", path, message, at="key", about=[(*path, key) for key in _WORKERS])
    for key in ("worker_stage", "merge_stage"):
        name = getattr(fan_out, key)
        if name is not None:
            check_stage(names, (*path, key), name, report)
    worker = names.stages.get(fan_out.worker_stage or "")
    if worker is not None and not worker.allow_as_worker:
        message = f"`{worker.name}` does not serve as a worker; write `allow_as_worker = true` in that stage"
        about: list[Path] = [("stages", worker.name, "allow_as_worker")]
        report.error("worker-not-allowed", (*path, "worker_stage"), message, about=about)


def _check_points(path: Path, stage: Stage, report: Report) -> None:
    points, here = stage.interaction_points, (*path, "interaction_points")
    about = [(*path, "mode")]
    if points and stage.mode != "interactive_points":
        message = f"interaction points belong to the mode `interactive_points`, and this stage is `{stage.mode}`"
        report.soft("key-without-effect", here, message, at="key", about=about)
    if not points and stage.mode == "interactive_points":
        message = "the mode `interactive_points` has no points; write `[[stages.NAME.interaction_points]]`"
        report.warning("interaction-points-missing", (*path, "mode"), message)
    seen: set[str] = set()
    for index, point in enumerate(points):
        if point.name in seen:
            report.error("duplicate-point", (*here, index), f"there are two points `{point.name}`; rename one")
        seen.add(point.name)
        _check_answers((*here, index), point, report)


def _check_answers(path: Path, point: InteractionPoint, report: Report) -> None:
    about = [(*path, "style"), (*path, "options")]
    if point.style != "multiple_choice":
        if point.options:
            message = f"`options` belong to the style `multiple_choice`, and this point is `{point.style}`"
            report.soft("key-without-effect", (*path, "options"), message, at="key", about=about)
        return
    if len(point.options) < 2:
        message = "a `multiple_choice` point needs two `options` or more; write them"
        report.error("interaction-options", path, message, about=about)
        return
    for key in ("abort_options", "edit_options", "directives"):
        for name in getattr(point, key):
            if name not in point.options:
                message = f"`{key}` has {shown(name)}, which is none of {listed(point.options)}; nobody can answer it"
                report.error("interaction-options", (*path, key), message, about=about)


def check_top(blueprint: Blueprint, report: Report) -> None:
    """Add what is wrong with lists of the whole blueprint."""
    for index, name in enumerate(blueprint.components):
        if name in blueprint.components[:index]:
            message = f"`{name}` stands in the list already; drop it"
            report.warning("component-twice", ("components", "use", index), message)
        elif name not in COMPONENTS:
            message = f"no component `{name}` ships{report.near(name, COMPONENTS)}; a swarm has to register it"
            report.warning("component-not-shipped", ("components", "use", index), message)
