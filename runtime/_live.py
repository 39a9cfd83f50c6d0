"""A run that is alive: its state, the journal it writes to, and the host it lives on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, final

import anyio
import msgspec

from shoal.blueprints import Permission
from shoal.providers import Message
from shoal.runtime._attachment import Prepared, named
from shoal.runtime._host import Host, Serving
from shoal.runtime._seed_files import OWN_FOLDER
from shoal.runtime._tooling import context_of
from shoal.runtime.context import NOTHING_SAID, Change, Draft, PartStored, Rendering, Said, ScriptCall
from shoal.runtime.context import Plan as WritePlan
from shoal.runtime.events import Event, Payload
from shoal.runtime.program import StageProgram
from shoal.runtime.scripts import MARK, Script
from shoal.runtime.state import RunState
from shoal.runtime.tools import ToolContext

if TYPE_CHECKING:
    from shoal.runtime._fan_out import Plan


class Appends(Protocol):
    """Takes events, in order."""

    def append(self, event: Event) -> None:
        """Put *event* behind everything appended so far."""
        ...

    def store(self, digest: str, data: bytes) -> None:
        """Keep the bytes of a part under their *digest*."""
        ...


@final
class Late(Exception):
    """Something came back to a life that was ended meanwhile: there is nobody to tell, and nothing to mend."""


@final
class Condensed(msgspec.Struct):
    """A summary of a region for a child.

    Args:
        digest: What stands for the text that it is of.
        job: The job that makes it.
        text: The summary; empty until it is made, and where none could be.
    """

    digest: bytes
    job: int
    text: str = ""


_NO_SUMMARIES: Mapping[str, Condensed] = MappingProxyType({})


@final
class Live:
    """One life of a run: what the steps of a run work with.

    Args:
        state: What its events add up to.
        host: The services it shares with others.
        journal: Where its events go; `None` for the host's journal.
        scripts: Scripts at hand, by the name under which the run keeps them; others are read from the journal.
    """

    __slots__ = (
        "_context",
        "_journal",
        "_moved",
        "_permitted",
        "_serving",
        "_settled",
        "condensed",
        "fan_outs",
        "gone",
        "host",
        "idle_since",
        "renders",
        "run_id",
        "scanned",
        "scripts",
        "state",
    )

    def __init__(
        self,
        state: RunState,
        host: Host,
        *,
        journal: Appends | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> None:
        self._journal: Appends = journal or host.journal
        self.scripts: dict[str, Script] = dict(scripts or {})
        """Its scripts, by the name under which it keeps them, as far as they were needed."""
        self.renders: dict[str, tuple[ScriptCall, Rendering | None]] = {}
        """What its custom regions showed last, and the call that gave it, by region."""
        self.run_id = state.run_id
        self.state = state
        self.host = host
        self.gone = False
        """This life is over; a job that comes back late changes nothing."""
        self.fan_outs: dict[tuple[int, int], Plan] = {}
        """How the fan-out calls that are under way are carried out, by seq of the reply and number of the call."""
        self.condensed: Mapping[str, Condensed] = _NO_SUMMARIES
        """The newest summary of a region that was made for a child, by region."""
        self.scanned: tuple[tuple[str, int, int], ...] = ()
        """What the folder of the run's own tools held when it was looked at last."""
        self.idle_since: float | None = None
        """Since when it has only had to wait, in monotonic seconds; `None` while it is at work."""
        self._serving: tuple[tuple[str, str, int], Serving] | None = None
        self._settled: anyio.Event | None = None
        self._moved: anyio.Event | None = None
        self._context: ToolContext | None = None
        self._permitted: tuple[StageProgram, Mapping[str, Permission]] | None = None

    def __repr__(self) -> str:
        return f"<Live {self.state!r}>"

    @property
    def over(self) -> bool:
        """This life, or the run itself, is over: nothing more may be written to it."""
        return self.gone or self.state.ended is not None

    @property
    def context(self) -> ToolContext:
        """What the run's tools work with."""
        if self._context is None:
            self._context = context_of(self.host, self.state)
        return self._context

    @property
    def permitted(self) -> Mapping[str, Permission]:
        """What each tool of the stage may do."""
        stage = self.state.stage
        if self._permitted is None or self._permitted[0] is not stage:
            of, blueprint = self.host.permissions.of, self.state.program.blueprint
            self._permitted = (stage, {name: of(tool, stage.stage, blueprint) for name, tool in stage.tools.items()})
        return self._permitted[1]

    def script(self, path: str) -> Script:
        """Return the run's script at *path*, as it was when the run was spawned.

        Raises:
            DefinitionMissing: The journal does not hold it.
        """
        known = self.scripts.get(path)
        if known is None:
            digest = next((digest for name, digest in self.state.made_by.scripts if name == path), "")
            source = self.host.journal.definition(digest).decode()
            at_hand = self.host.sandbox.trusted(path.removeprefix(OWN_FOLDER)) if source.startswith(MARK) else None
            known = self.scripts[path] = at_hand or Script(path, source)
        return known

    # --- writing

    def emit(self, payload: Payload, message: Message | None = None) -> int:
        """Journal *payload* as the run's next event, apply it, and return its seq.

        Events that are emitted without an `await` between them become durable together.

        Raises:
            Late: This life is over.
            JournalFailed: The journal cannot be written.
        """
        if self.gone or self.state.ended is not None:
            raise Late(f"run {self.run_id} is over; nothing is written to it any more")
        event = Event(self.run_id, self.state.seq + 1, self.host.clock.stamp(), payload)
        self._journal.append(event)
        self.state.apply(event, message)
        return event.seq

    def keep(self, part: Prepared | PartStored) -> int:
        """Keep *part* and return the seq of its `PartStored`; what the run has already is not stored again.

        Args:
            part: The part; one without its bytes is in the journal already.
        """
        shelf = self.state.shelf
        stored = part.stored if isinstance(part, Prepared) else part
        known = shelf.known(stored.digest, stored.name)
        if known is not None:
            return known
        if isinstance(part, Prepared):
            self._journal.store(stored.digest, part.data)
        return self.emit(named(stored, shelf))

    def change(self, changes: Iterable[tuple[Change, Message | None]]) -> None:
        """Journal and apply *changes*, in order."""
        for change, message in changes:
            self.emit(change, message)

    def write(
        self,
        region: str,
        draft: Draft,
        *,
        most_tokens: int | None = None,
        joins: bool = False,
        replaces: Sequence[int] = (),
        said: Said = NOTHING_SAID,
    ) -> WritePlan:
        """Plan a write that waits for nothing, carry it out, and return the plan; its orders are left to the caller.

        *said* is what the script of a custom region said of it.
        """
        window = self.state.view
        busy = region in self.state.busy_regions()
        plan = window.plan_write(
            region, draft, most_tokens=most_tokens, replaces=replaces, in_flight=busy, joins=joins, said=said
        )
        self.change(plan.changes)
        return plan

    async def durable(self) -> None:
        """Return once everything that was emitted is durable.

        Raises:
            JournalFailed: It could not be written.
        """
        await self.host.journal.barrier()

    # --- waiting

    def pulse(self) -> None:
        """Tell whoever waits that somebody steered this run, or told it something."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def next_move(self) -> None:
        """Return once somebody steers this run, or tells it something."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def settled(self) -> None:
        """Tell whoever waits that a job of this run came to an end."""
        if self._settled is not None:
            self._settled.set()
            self._settled = None

    async def next_settled(self) -> None:
        """Return once a job of this run comes to an end.

        Raises:
            JournalFailed: Its end could not be written.
        """
        if self._settled is None:
            self._settled = anyio.Event()
        await self._settled.wait()
        if not self.host.journal.healthy:
            await self.durable()

    # --- who serves

    def serving(self) -> Serving:
        """Return who serves the current stage, as its events say.

        Raises:
            SpawnRefused: That provider is not there any more.
        """
        key = self.state.serving
        if self._serving is None or self._serving[0] != key:
            candidates = self.candidates()
            found = next((s for s in candidates if (s.provider.name, s.model) == key[:2]), candidates[0])
            self._serving = (key, found)
        return self._serving[1]

    def candidates(self) -> tuple[Serving, ...]:
        """Return who may serve the current stage, best first."""
        made = self.state.made_by
        return tuple(self.host.serving(self.state.stage.model, made.model, made.default_model))
