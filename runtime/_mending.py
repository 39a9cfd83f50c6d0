"""A run whose record is damaged goes on from the last event that can be read, and is told so.

What it did behind that event is unknown, as it is of a call that a killed process had started: nothing of it is done
again by itself.
"""

from __future__ import annotations

from typing import Protocol

from shoal.errors import JournalDamaged
from shoal.providers import Text
from shoal.runtime._control import Cancel, Steered, steer
from shoal.runtime._live import Live
from shoal.runtime.events import MessageReceived, ToolCallStarted
from shoal.runtime.journal import Journal
from shoal.runtime.state import RunState

BORN = 2
"""Seq of a run's first `StageEntered`."""
UNREADABLE = "unreadable"
"""The flag of a run that was ended because it cannot be read back."""
SENDER = "shoal"
"""Who tells a run that its record was damaged."""


class Loads(Protocol):
    """What mending needs of where runs stand."""

    journal: Journal

    def load(self, run_id: str) -> RunState:
        """Return the state that the run's journal adds up to."""
        ...


def mended(home: Loads, run_id: str, damage: JournalDamaged) -> RunState:
    """Set aside what of *run_id* cannot be read and all behind it, and return the state that is left.

    Raises:
        JournalDamaged: Its first two events cannot be read, so there is nothing to go on from: what it is made of, and
            the stage that it begins in.
        JournalFailed: The journal cannot be written.
    """
    if damage.seq is None or damage.seq <= BORN:
        raise damage
    home.journal.set_aside(run_id, damage.seq)
    return home.load(run_id)


async def cancel_strays(home: Steered, state: RunState) -> None:
    """Cancel the children that only the damaged part of a run knew of: nobody would hear of their end."""
    for row in home.journal.runs(root=state.made_by.root):
        if row.parent == state.run_id and row.run_id not in state.children and not row.ended:
            await steer(home, row.run_id, Cancel("the record of its parent is damaged, and knows nothing of it"))


def own_up(live: Live, damage: JournalDamaged) -> None:
    """Tell the run that its record was damaged; the calls that it had open count as begun.

    An agentic function, which reads no messages, is not told: its models are, of each call whose effect is unknown.
    """
    for made in tuple(live.state.frames.replies.values()):
        for index in made.open_calls:
            if index not in made.started:
                live.emit(ToolCallStarted(made.seq, index))
    if live.state.program.function is not None:
        return
    turn = live.state.turn
    if turn is not None:
        for index in turn.open_calls:
            if index not in turn.started:
                live.emit(ToolCallStarted(turn.seq, index))
    said = (
        f"The record of this run was damaged from event {damage.seq} on, and it goes on from the one before. What was "
        "done after that is unknown: look before you do anything a second time."
    )
    live.emit(MessageReceived(Text.of(said), SENDER))
