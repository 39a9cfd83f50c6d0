"""What a model was told of each region, and what it would be told now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import final

import msgspec

from shoal.providers import Text
from shoal.runtime.context._assemble import Section, around_of, shown
from shoal.runtime.context._layout import CHUNKED
from shoal.runtime.context._render import BLANK_LINE, said_in_block
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._window import Window

NOTHING = Text.of("(empty)")
"""What is said of a region that shows nothing any more."""


@final
class Told(msgspec.Struct):
    """What the model was last told of one region.

    Args:
        section: Where the region stands in a prompt.
        digest: Stands for what it showed; empty for nothing.
        next_id: Entries (of a checklist: items) from this id on were not sent.
        text: What was said of it at the end; `None` where nothing was.
        rewritten: Something that was sent of it is no longer so.
    """

    section: Section
    digest: bytes
    next_id: int
    text: Text | None = None
    rewritten: bool = False


def next_id(state: RegionState) -> int:
    """Return the id that the next entry (of a checklist: item) of *state* gets."""
    return state.next_item if state.region.kind == "checklist" else state.next_id


def sections(window: Window) -> Iterator[tuple[str, Section]]:
    """Yield the regions of *window*'s stage in prompt order, each with where it stands; custom ones are in the system.

    What a script shows of a custom region as messages goes with what it shows as blocks.
    """
    layout = window.layout
    for name in layout.system:
        yield name, "system"
    for name in layout.messages:
        if layout.regions[name].kind != "custom":
            yield name, "messages"
    for name in layout.tail:
        yield name, "tail"


def said_of(window: Window, name: str, since: int = 0) -> Text:
    """Return what a region says, without a heading of ours: its entries from the id *since* on, or all it shows."""
    state, theme = window.states[name], window.layout.theme
    if state.region.kind in CHUNKED:
        entries = [entry for entry in state.all_entries() if entry.entry_id >= since]
        said = [b"".join([theme.escaped(text).body for text in said_in_block(entry)]) for entry in entries]
        return Text(BLANK_LINE.body.join(said))
    made = shown(state, theme, window.intake)
    own = 0 if state.region.kind == "custom" else 1  # the heading that stands in front of the rest
    blocks = [b"".join([text.body for text in block.texts[own:]]) for block in made.blocks]
    messages = [b"".join([t.body for t in m.texts]) for segment in made.segments for m in segment.messages]
    return Text(BLANK_LINE.body.join(chain(blocks, messages)))


def said_in(window: Window, name: str, text: Text) -> Text:
    """Return *text*, as a region was said at the end, without the heading and the word for nothing."""
    region, theme = window.layout.regions[name], window.layout.theme
    for heading in (theme.now(region).body, theme.heading(region).body):
        if text.body.startswith(heading):
            body = text.body[len(heading) :]
            return Text(b"" if body == NOTHING.body else body)
    return text


def stands_for(window: Window, name: str) -> bytes:
    """Return what stands for all that a region shows; empty for nothing."""
    if window.layout.regions[name].kind == "custom":
        return stood_for(said_of(window, name))
    return shown(window.states[name], window.layout.theme, window.intake).digest


def stood_for(text: Text) -> bytes:
    """Return what stands for *text*; empty for nothing."""
    return text.digest if text else b""


def told_of(window: Window, name: str, section: Section, before: Told | None = None) -> Told:
    """Return what the model knows of a region that it is told of now; *before* is what it knew until then."""
    text = None if before is None else before.text
    return Told(section, stands_for(window, name), next_id(window.states[name]), text)


def declared_stable(window: Window) -> Mapping[str, bytes]:
    """Return what stands for each region of the stage that is declared `stable` and shows something in front."""
    around = around_of(window)
    if window.stable is None or window.stable[0] is not around:
        window.stable = (around, _stable(window))
    return window.stable[1]


def _stable(window: Window) -> dict[str, bytes]:
    regions = window.layout.regions
    stable = (name for name in window.layout.system if regions[name].volatility == "stable")
    shows = ((name, stands_for(window, name)) for name in stable)
    return {name: digest for name, digest in shows if digest}
