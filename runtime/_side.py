"""Side work of a run in the three lanes: summaries, titles, refreshed seeds.

A job is journaled when it is ordered and when it ends, and nothing that happens to it can hurt the run: a summary that
fails leaves the entries, a title that fails gives way to the task's first words, a refresh that fails keeps the old
value. Each leaves one `LaneDegraded`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial

from shoal.blueprints import LaneSettings
from shoal.errors import SpawnRefused
from shoal.providers import Text
from shoal.runtime._aside import asked, wanted
from shoal.runtime._lane_settings import settings_of
from shoal.runtime._lanes import Job, JobFailed
from shoal.runtime._live import Condensed, Live
from shoal.runtime._parts import with_parts
from shoal.runtime._scripting import vetted_blocks
from shoal.runtime._seeds import in_text, resolve_seeds
from shoal.runtime._sources import repeatable, sources_of
from shoal.runtime._titles import TITLE_CHARS, TITLED_CHARS, first_words, title_of
from shoal.runtime._transforms import text_of
from shoal.runtime._words import is_own_word
from shoal.runtime.context import (
    CONVERSATION,
    NOTHING_SAID,
    Draft,
    Entry,
    Order,
    Plan,
    Said,
    estimate_text,
)
from shoal.runtime.events import (
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    RunTitled,
)

# --- ordering and waiting


def order_summaries(live: Live, orders: Iterable[Order]) -> None:
    """Order the summaries that regions ask for; a region with one under way gets no second."""
    for order in orders:
        if order.region not in live.state.busy_regions():
            job = live.emit(LaneStarted("compaction", order.region, order.entry_ids))
            submit_job(live, job)


def write(
    live: Live,
    region: str,
    draft: Draft,
    *,
    joins: bool = False,
    replaces: Sequence[int] = (),
    said: Said = NOTHING_SAID,
) -> Plan:
    """Plan a write that waits for nothing, carry it out, order the summaries it asks for, and return the plan.

    *said* is what the script of a custom region said of it; see `shoal.runtime._scripting.vetted`.
    """
    plan = live.write(region, draft, joins=joins, replaces=replaces, said=said)
    order_summaries(live, plan.orders)
    return plan


async def wait_for_summaries(live: Live, regions: Sequence[str]) -> None:
    """Return once none of *regions* has a summary under way; a lane that is down answers at once."""
    waited_for = frozenset(regions)
    while waited_for & live.state.busy_regions():
        await live.next_settled()


async def refresh(live: Live, regions: Sequence[str]) -> None:
    """Resolve the seeds of *regions* again and return when each has its new value or keeps the old one."""
    ordered = {job.started.region for job in live.state.jobs.values() if job.started.lane == "refresh"}
    for region in regions:
        if region not in ordered:
            submit_job(live, live.emit(LaneStarted("refresh", region)))
    while any(job.started.lane == "refresh" for job in live.state.jobs.values()):
        await live.next_settled()


def order_title(live: Live) -> None:
    """Order a title for a run that has a task; only roots have one."""
    made = live.state.made_by
    if made.parent is None and made.task is not None:
        submit_job(live, live.emit(LaneStarted("titling")))


def submit_job(live: Live, job_id: int) -> None:
    """Hand the job that `LaneStarted` *job_id* ordered to its lane; a resumed run does so again."""
    started = live.state.jobs[job_id].started
    settings = settings_of(started.lane, live.state.program.blueprint.lanes, live.host.lane_defaults)
    match started.lane:
        case "compaction":
            work = _condense if started.aside else _summarise
        case "titling":
            work = _title
        case "refresh":
            work = _refreshed
    once = started.lane == "refresh" and not _repeatable(live, started)
    live.host.submit(
        started.lane,
        Job(
            live.run_id,
            job_id,
            partial(work, live, job_id, started, settings),
            partial(_degrade, live, job_id, started),
            settings.timeout_s or 0.0,
            0 if once else settings.retries or 0,
        ),
    )


def take_up_job(live: Live, job_id: int) -> None:
    """Go on with a job that an earlier life of the run had ordered, unless something would then happen twice."""
    started = live.state.jobs[job_id].started
    if started.lane == "refresh" and not _repeatable(live, started):
        _degrade(live, job_id, started, "interrupted", "the process died while it ran; what it had done is unknown")
    elif started.aside:
        _degrade(live, job_id, started, "interrupted", "the process died while it was made; it is made anew if needed")
    else:
        submit_job(live, job_id)


def _repeatable(live: Live, started: LaneStarted) -> bool:
    """Say whether the seed that a job resolves again may be resolved once more."""
    return repeatable(live.state.stage.layout.regions[started.region].seed, live.state.program)


def drop_jobs(live: Live) -> None:
    """End every job of a run that ends: nobody needs what it would give."""
    for job in tuple(live.state.jobs.values()):
        _degrade(live, job.job, job.started, "dropped", "")
    live.host.drop_jobs(live.run_id)


def _degrade(live: Live, job_id: int, started: LaneStarted, reason: str, error: str, bytes_saved: int = 0) -> None:
    if not wanted(live, job_id):
        return
    try:
        live.emit(LaneDegraded(started.lane, job_id, started.region, reason, error, bytes_saved))
        if started.lane == "titling":
            live.emit(RunTitled(first_words(str(live.state.made_by.task or "")), "task"))
    finally:
        live.settled()  # whoever waits is told, also where the journal cannot be


# --- summaries


async def _summarise(live: Live, job_id: int, started: LaneStarted, settings: LaneSettings) -> None:
    """Have the entries of a region summarised, and put the summary in their place."""
    settings = _on_an_edge(live, settings)
    state = live.state.view.states[started.region]
    chosen = frozenset(started.entry_ids)
    entries = [entry for entry in state.all_entries() if entry.entry_id in chosen]
    if not entries:
        raise JobFailed("dropped", "the entries are gone", final=True)
    material = "\n\n".join(_shown(entry) for entry in entries)
    content = "\n\n".join(_shown(entry) for entry in entries if not is_own_word(entry))
    text = await asked(live, job_id, "compaction", settings, started.region, material, content)
    if not wanted(live, job_id):
        return
    if not text.strip():
        raise JobFailed("blank", "the summary is blank")
    summary = Text.of(text.strip())
    cost = max(1, estimate_text(summary))
    change, orders = live.state.view.plan_summary(started.region, started.entry_ids, summary, cost)
    if change is None:
        held = sum(len(_shown(entry).encode()) for entry in entries)
        knobs = live.state.view.layout.knobs if started.region == CONVERSATION else None
        why = "the summary is not smaller" + ("" if knobs is None else "; raise `soft_cap_chars`")
        raise JobFailed("not_smaller", why, final=True, bytes_saved=held - len(text.encode()))
    live.emit(change)
    live.emit(LaneCompleted("compaction", job_id, started.region))
    order_summaries(live, orders)
    live.settled()


def _on_an_edge(live: Live, settings: LaneSettings) -> LaneSettings:
    """Return *settings* with the prompt of the edge that is being taken, where it has one."""
    leaving = live.state.leaving
    if leaving is None:
        return settings
    edges = live.state.program.stages[leaving.source].stage.transitions or ()
    config = next((e.transform_config for e in edges if e.target == leaving.target and e.transform_config), None)
    prompt = None if config is None else config.compact_prompt
    return settings if prompt is None else dataclasses.replace(settings, prompt=prompt)


def _shown(entry: Entry) -> str:
    if entry.kind in ("text", "summary"):
        return entry.text  # nobody said it: a role in front of it would be summarised along, again and again
    calls = "".join(f"\n[call {call.name} {call.arguments}]" for call in entry.message.calls)
    return f"{entry.message.role}: {entry.text}{calls}"


# --- summaries for children


async def condensed(live: Live, region: str, text: str) -> str:
    """Return *text*, which is what *region* holds, in summary.

    Where no summary can be had it is given as it is, and an event says so. Children that are given the same share one
    summary. The run pays for it, and nothing of its window changes.
    """
    digest = Text.of(text).digest
    known = live.condensed.get(region)
    if known is None or known.digest != digest:
        known = Condensed(digest, live.state.seq + 1)
        live.condensed = {**live.condensed, region: known}
        submit_job(live, live.emit(LaneStarted("compaction", region, aside=True)))
    while known.job in live.state.jobs and not live.over:
        await live.next_settled()
    if not known.text:
        # The next child tries again.
        live.condensed = {name: each for name, each in live.condensed.items() if each is not known}
    return known.text or text


async def _condense(live: Live, job_id: int, started: LaneStarted, settings: LaneSettings) -> None:
    """Have all that a region holds summarised for a child."""
    asking = live.condensed.get(started.region)
    state = live.state.view.states[started.region]
    material = text_of(state)
    if asking is None or asking.job != job_id or Text.of(material).digest != asking.digest:
        raise JobFailed("dropped", "the region changed meanwhile", final=True)
    content = text_of(state, own_words=False)
    said = (await asked(live, job_id, "compaction", settings, started.region, material, content)).strip()
    if not wanted(live, job_id):
        return
    if not said:
        raise JobFailed("blank", "the summary is blank")
    saved = len(material.encode()) - len(said.encode())
    if saved <= 0:
        raise JobFailed("not_smaller", "the summary is not smaller", final=True, bytes_saved=saved)
    asking.text = said
    live.emit(LaneCompleted("compaction", job_id, started.region))
    live.settled()


# --- titles


async def _title(live: Live, job_id: int, started: LaneStarted, settings: LaneSettings) -> None:
    """Have the run titled."""
    task = str(live.state.made_by.task or "")[:TITLED_CHARS]
    said = await asked(live, job_id, "titling", settings, "task", task)
    if not wanted(live, job_id):
        return
    title = title_of(said)
    if title is None:
        raise JobFailed("nonsense", f"{said[:TITLE_CHARS]!r} is no title")
    live.emit(RunTitled(title, "lane"))
    live.emit(LaneCompleted("titling", job_id))
    live.settled()


# --- seeds


async def _refreshed(live: Live, job_id: int, started: LaneStarted, settings: LaneSettings) -> None:
    """Resolve a region's seed again; what failed keeps its old block."""
    region = live.state.stage.layout.regions[started.region]
    # What a tool or a command does must not be the first thing that is known of it.
    await live.durable()
    if not wanted(live, job_id):
        return
    try:
        resolved = (await resolve_seeds([region], sources_of(live, job_id)))[0]
    except SpawnRefused as refused:
        raise JobFailed("refused", str(refused), final=True) from refused
    if not wanted(live, job_id):
        return
    if region.kind == "checklist":
        resolved = in_text(resolved, refuses=False)
    resolved = with_parts(live, live.host.secrets.in_seed(resolved))
    blocks, keys = await vetted_blocks(live, resolved.region, resolved.blocks)
    if not wanted(live, job_id):
        return
    changes = live.state.view.plan_refresh(resolved.region, resolved.form, blocks, resolved.notes, keys)
    if not changes and not all(block.ok for block in resolved.blocks):
        raise JobFailed("failed", "; ".join(resolved.notes), final=True)
    live.change(changes)
    live.emit(LaneCompleted("refresh", job_id, started.region))
    live.settled()
