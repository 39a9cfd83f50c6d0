"""What changes of the prompt cost: regions in front of the conversation, windows that roll, stages that follow."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.blueprints import ALWAYS_REGIONS, Blueprint, Region, Stage, can_write, stage_tools
from shoal.runtime.context import CONVERSATION, Theme, layout_of, names_of, resolve
from shoal.validate._finding import Findings, moves_of, note, regions_of, warning


def check_caching(blueprint: Blueprint, window_tokens: int) -> Findings:
    """Yield what is read anew more often than it has to be, in tokens on a window of *window_tokens*."""
    yield from _rewritten(blueprint, window_tokens)
    yield from _rolling(blueprint, window_tokens)
    yield from _masks(blueprint)
    yield from _moves(blueprint, window_tokens)


def _layout(blueprint: Blueprint, stage: Stage) -> Sequence[Region]:
    return tuple(layout_of(blueprint, stage, Theme(names_of(blueprint))).regions.values())


def _behind(blueprint: Blueprint, stage: Stage, window_tokens: int) -> int:
    """Return what the messages of *stage* may hold: all of it stands behind whatever changes in front."""
    said = [region for region in _layout(blueprint, stage) if region.kind == "sliding_window"]
    return min(window_tokens, sum(resolve(region, window_tokens).budget for region in said))


def _rewritten(blueprint: Blueprint, window_tokens: int) -> Findings:
    for key, region in regions_of(blueprint):
        fixed = region.volatility != "rewritten" or region.placement == "tail" or region.kind == "sliding_window"
        writers = [stage for stage in blueprint.stages if can_write(stage, region)]
        if fixed or region.name in ALWAYS_REGIONS or not writers:
            continue
        tokens = _behind(blueprint, writers[0], window_tokens)
        said = (
            f"each change of `{region.name}` makes the conversation behind it uncached, up to {tokens:,} tokens; "
            '`placement = "tail"` costs only the region itself'
        )
        yield note("rewritten-before-conversation", key, said)


def _rolling(blueprint: Blueprint, window_tokens: int) -> Findings:
    for key, region in regions_of(blueprint):
        if region.kind == "sliding_window" and region.strategy == "per_item" and region.max_items is not None:
            tokens = resolve(region, window_tokens).budget
            said = (
                f"past {region.max_items} entries `{region.name}` drops one for each that comes, so that all of it, up "
                f'to {tokens:,} tokens, is read anew in every turn; `strategy = "bulk"` drops several at once'
            )
            yield warning("per-item-rewrites-prefix", key, said)


def _masks(blueprint: Blueprint) -> Findings:
    knobs = [("context.observations", blueprint.observations)]
    knobs += [(f"stages.{stage.name}.context.observations", stage.context.observations) for stage in blueprint.stages]
    for key, observations in knobs:
        if observations is not None and observations.mask_step == 1:
            said = (
                "the edge of what is masked moves in every turn, so that all behind it is read anew; raise `mask_step`"
            )
            yield warning("mask-edge-every-turn", f"{key}.mask_step", said)


def _moves(blueprint: Blueprint, window_tokens: int) -> Findings:
    for key, source, target in moves_of(blueprint):
        behind = _behind(blueprint, target, window_tokens)
        if blueprint.tool_list == "stage" and set(stage_tools(source)) != set(stage_tools(target)):
            whole = min(window_tokens, sum(resolve(r, window_tokens).budget for r in _layout(blueprint, target)))
            said = (
                f"`{target.name}` has other tools than `{source.name}`, which stand in front of everything: up to "
                f'{whole:,} tokens are read anew; `tool_list = "run"` sends the tools of all stages in every request'
            )
            yield note("stage-changes-tools", key, said)
        elif target.system_prompt and target.prompt_as == "instructions" and _keeps(target):
            said = (
                f"the instructions of `{target.name}` stand in front of the conversation, so that up to {behind:,} "
                'tokens of it are read anew; `prompt_as = "nudge"` puts them behind it'
            )
            yield note("stage-change-recosts-conversation", key, said)


def _keeps(stage: Stage) -> bool:
    """Say whether *stage* goes on with the conversation that it finds."""
    return CONVERSATION not in stage.context.reset
