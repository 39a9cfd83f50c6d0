"""The swarm as users open it: names and places are resolved here, and objects handed on to the runtime."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import anyio
import anyio.to_thread
from typing_extensions import override

from shoal import runtime
from shoal._beyond import exporter_settings, receiver_from, servers_from
from shoal._environment import names_receiver, providers_from
from shoal._granted import permissions_from
from shoal._held import Held
from shoal._makers import MAKERS
from shoal._narrowing import lanes_from, limits_from, pools_from
from shoal._secrets import secrets_from
from shoal._serving import default_model_from
from shoal.blueprints import Lanes, ModelChoice
from shoal.errors import ConfigInvalid, JournalFailed
from shoal.observability import Metrics, Propagation, Telemetry, current_traceparent, metrics_otlp, otlp, through
from shoal.providers import Provider, RetryPolicy, Trace
from shoal.runtime import (
    Clock,
    ContextComponent,
    Journal,
    Limits,
    McpServer,
    Memory,
    Observer,
    Permissions,
    SpawnRequest,
    SqliteJournal,
    said_of,
)
from shoal.runtime.journal import BEAT_S, Durability, host_name
from shoal.runtime.scripts import Functions

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class Swarm(runtime.Swarm):
    """Runs agents: `async with shoal.Swarm() as swarm: run = await swarm.spawn("digest", task="…")`.

    Without arguments it has the offline provider and keeps its events in memory. Leaving the block stops what still
    runs; where the journal is a file such runs stay in it and can be resumed.

    Args:
        providers: Who serves models, 1 or more; `None` takes what `SHOAL_PROVIDER` names, else the offline provider.
        journal: A file to keep events in, or a journal; `None` keeps them in memory.
        telemetry: `otlp` sends spans where the standard `OTEL_*` variables say; or a `Telemetry`, or a `TracerProvider`
            of your own; `None` sends nothing.
        metrics: `otlp` sends metrics where the standard `OTEL_*` variables say; or `Metrics`, such as `prometheus()`
            gives; `None` measures nothing.
        durability: Of a file: `normal` survives the death of the process, `full` a power cut, `off` is for tests.
        observers: Each gets every event once it is durable.
        limits: What runs may do at most; `None` takes what the settings say.
        permissions: What the user allows; `None` takes what the settings say.
        retry: How often a request is repeated; `None` for a policy that adds up to a quarter to each wait, at random.
        pools: Most requests in flight by provider's name, or by `provider:model`, and `tools`; `None` takes what the
            settings say.
        clock: Time and randomness.
        mcp: MCP servers whose tools runs may use; `None` takes what the settings say.
        services: Workers that live as long as the swarm, by name.
        beside: Workers that run beside the lanes and, like them, may fail without hurting a run, by name.
        scripts: Trusted functions in the place of scripts: by the path that a blueprint names, functions by name.
        components: What may stand in prompts beside regions, besides what ships; one of a shipped name takes its place.
        memory: What agents remember from run to run: a folder of Markdown files, or a memory of your own; `None` for
            nothing.
        lanes: How lanes serve runs whose blueprint says nothing else; `None` takes what the settings say.
        secrets: Names of variables of the environment whose values are struck out of what tools, people, seeds and
            models say, before it comes into a run; the keys of vendors are among them by themselves.
        default_model: What you prefer, as `provider` or `provider:model`: it serves stages that name no model, and
            leads the lists that have it, where they let it (`allow_user_default`). `None` takes what the settings say
            where *providers* is `None` too.
        trace_hosts: Hosts, such as `gateway.example`, whose servers are told with each request which span it belongs to
            (`traceparent`); all others learn nothing.

    Raises:
        ConfigInvalid: The environment names a provider that cannot be had, one of *providers* is none, a `Telemetry`
            is among *observers*, one of *pools* is nobody's, the settings are of no use, one of *trace_hosts* is no
            host, or a secret has less than 8 characters.
    """

    __module__ = "shoal"

    def __init__(
        self,
        providers: Sequence[Provider] | None = None,
        *,
        journal: str | os.PathLike[str] | Journal | None = None,
        telemetry: Literal["otlp"] | Telemetry | TracerProvider | None = None,
        metrics: Literal["otlp"] | Metrics | None = None,
        durability: Durability = "normal",
        observers: Sequence[Observer] = (),
        limits: Limits | None = None,
        permissions: Permissions | None = None,
        retry: RetryPolicy | None = None,
        pools: Mapping[str, int] | None = None,
        clock: Clock | None = None,
        mcp: Sequence[McpServer] | None = None,
        services: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
        beside: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
        scripts: Mapping[str, Functions] | None = None,
        components: Sequence[ContextComponent] = (),
        memory: str | os.PathLike[str] | Memory | None = None,
        lanes: Lanes | None = None,
        secrets: Sequence[str] = (),
        default_model: str | None = None,
        trace_hosts: Sequence[str] = (),
    ) -> None:
        self._propagation = Propagation(trace_hosts)
        self._path: Path | None
        self._path, given = (Path(journal), None) if isinstance(journal, str | os.PathLike) else (None, journal)
        self._durability: Durability = durability
        self._held: Held | None = None
        self._wanted_telemetry = telemetry
        self._telemetry: Telemetry | None = None
        self._wanted_metrics = metrics
        self._metrics: Metrics | None = None
        self._watching = tuple(observers)
        shows_life = self._path is not None or (isinstance(given, SqliteJournal) and given.host is not None)
        serving = providers_from() if providers is None else _checked(providers)
        if any(isinstance(observer, Telemetry) for observer in self._watching):
            raise ConfigInvalid("a `Telemetry` among `observers` sends nothing; give it as `telemetry=` instead")
        if providers is not None:  # else the environment says who serves, and may say another tomorrow
            _check_pools(pools or {}, [provider.name for provider in serving])
        if providers is None and default_model is None:
            default_model = default_model_from(serving)
        super().__init__(
            serving,
            given,
            observers,
            limits=limits_from() if limits is None else limits,
            permissions=permissions_from() if permissions is None else permissions,
            retry=retry,
            pools=pools_from() if pools is None else pools,
            clock=clock,
            mcp=servers_from() if mcp is None else mcp,
            services=services,
            # Beside the lanes: a file that is locked for a while must not take the runs down with it.
            beside={
                **({"lease": self._show_life} if shows_life else {}),
                **({"telemetry": self._send_spans} if telemetry is not None else {}),
                **(beside or {}),
            },
            scripts=scripts,
            components=components,
            memory=memory,
            lanes=lanes_from() if lanes is None else lanes,
            default_model=default_model,
            traced=self._trace_of if trace_hosts else None,
            secrets=secrets_from(secrets),
        )

    async def __aenter__(self) -> Self:
        self._check_closed()  # first, since what fails below closes what is open
        if self._path is not None:
            self.journal = SqliteJournal(self._path, durability=self._durability, host=host_name())
        try:
            if isinstance(self.journal, SqliteJournal):
                # Before the first run: a run whose host nobody knows could be taken by another process.
                self.journal.beat(self._clock.unix())
            self._telemetry = self._open_telemetry()
            self._metrics = self._open_metrics()
            watching = (self._telemetry, self._metrics)
            self._observers = (*self._watching, *(each for each in watching if each is not None))
            await super().__aenter__()
        except BaseException:
            await self._close_all()
            raise
        if self._metrics is not None:
            self._metrics.watch(self)
            if isinstance(self.journal, SqliteJournal):
                self.journal.on_commit = self._metrics.committed
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await super().__aexit__(kind, error, trace)
        finally:
            await self._close_all()

    @override
    def _completed(self, wanted: SpawnRequest[Any]) -> SpawnRequest[Any]:
        """Where a span of yours is current, the run joins its trace."""
        return wanted if wanted.trace is not None else replace(wanted, trace=current_traceparent())

    async def open(self) -> Self:
        """Open the swarm without a block, for a notebook's top level: `swarm = await shoal.Swarm().open()`.

        Raises:
            ConfigInvalid: It is open already.
            JournalFailed: The journal's file cannot be opened.
        """
        if self._held is not None:
            raise ConfigInvalid("this swarm is open; `await swarm.close()` it before it is opened again")
        self._held = await Held.open(self)
        return self

    async def close(self) -> None:
        """Close a swarm that `open` opened, as leaving the block does. Closing twice is fine.

        Raises:
            RestartsExhausted: A tree that was started as critical gave up.
        """
        held, self._held = self._held, None
        if held is not None:
            await held.close()

    def _trace_of(self, run_id: str, root: str, seq: int, model: str) -> Trace:
        traceparent = self._propagation.traceparent(self.journal, run_id, root, seq, model)
        return Trace(traceparent, self._propagation.hosts)

    def _open_telemetry(self) -> Telemetry | None:
        wanted = self._wanted_telemetry
        if isinstance(wanted, Telemetry):
            wanted.catch_up_from(self.journal)
        if wanted is None or isinstance(wanted, Telemetry):
            return wanted
        if wanted == "otlp":
            receiver = receiver_from()
            named = receiver is not None and not names_receiver()
            return otlp(history=self.journal, **(exporter_settings(receiver) if receiver is not None and named else {}))
        if isinstance(wanted, str):
            raise ConfigInvalid(f"`telemetry` is {wanted!r}; name `otlp`, or give a `Telemetry` or a `TracerProvider`")
        return through(wanted, history=self.journal)

    def _open_metrics(self) -> Metrics | None:
        wanted = self._wanted_metrics
        if isinstance(wanted, str):
            if wanted != "otlp":
                raise ConfigInvalid(f"`metrics` is {wanted!r}; name `otlp`, or give `Metrics`, such as `prometheus()`")
            return metrics_otlp()
        return wanted

    async def _send_spans(self) -> None:
        """Keep telemetry going, and send what waits when the swarm stops."""
        assert self._telemetry is not None  # the worker is there only where it is wanted
        await self._telemetry.serve()

    async def _close_all(self) -> None:
        telemetry, self._telemetry = self._telemetry, None
        metrics, self._metrics = self._metrics, None
        # What is left are the newest spans: those of runs that ended while the swarm was stopping.
        if telemetry is not None and telemetry is self._wanted_telemetry:
            with anyio.CancelScope(shield=True):
                await telemetry.flush()
        elif telemetry is not None:
            await telemetry.aclose()
        if metrics is not None:
            if isinstance(self.journal, SqliteJournal):
                self.journal.on_commit = None
            with anyio.CancelScope(shield=True):  # the newest figures are sent, in a thread since that may take a while
                await anyio.to_thread.run_sync(metrics.close)
        self._close_journal()

    def _close_journal(self) -> None:
        journal = self.journal
        if not isinstance(journal, SqliteJournal):
            return
        # What cannot be written any more cannot be given up either; this process is about to be silent anyway.
        with suppress(JournalFailed):
            journal.leave()
        if self._path is not None:
            journal.close()

    async def _show_life(self) -> None:
        """Show other processes that this one lives, so that none takes its runs, and how busy it is."""
        while True:
            await anyio.sleep(BEAT_S)
            journal = self.journal
            assert isinstance(journal, SqliteJournal)  # the worker is there for such a one only
            # A beat that is missed is followed by the next; should too many be, appends notice who went on.
            with suppress(JournalFailed):
                await anyio.to_thread.run_sync(journal.beat, self._clock.unix(), said_of(self.statistics()))


def _check_pools(pools: Mapping[str, int], providers: Sequence[str]) -> None:
    """Refuse a pool that no request would go through.

    Raises:
        ConfigInvalid: See above.
    """
    for name in pools:
        if name != "tools" and ModelChoice.of(name).provider not in providers:
            known = ", ".join(f"`{provider}`" for provider in providers)
            raise ConfigInvalid(
                f"the pool {name!r} is no provider's that is here; name `tools`, {known}, or one of its models"
            )


def _checked(providers: Sequence[Provider]) -> Sequence[Provider]:
    """Return *providers*; who writes a name, or one that stands in no list, is told what to write instead.

    Raises:
        ConfigInvalid: It is no list of providers.
    """
    given = cast("object", providers)
    if _missing(given) == ():
        raise ConfigInvalid(f"`providers` is {given!r} alone; give a list of it")
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Sequence):
        raise ConfigInvalid(f"`providers` is {given!r}; give a list, such as `[shoal.providers.openai(…)]`")
    for one in cast("Sequence[object]", given):
        missing = _missing(one)
        if missing == _OF_A_PROVIDER or isinstance(one, str):
            made = f"`shoal.providers.{str(one).replace('-', '_')}(…)`" if one in MAKERS else "one"
            raise ConfigInvalid(
                f"`providers` holds {one!r}, which is no provider; make {made}, or set `SHOAL_PROVIDER`"
            )
        if missing:
            raise ConfigInvalid(
                f"the provider {one!r} has no {', '.join(f'`{name}`' for name in missing)}; write what "
                "`shoal.providers.Provider` asks for"
            )
    return providers


_OF_A_PROVIDER = ("name", "default_model", "stream", "count_tokens", "profile", "aclose")


def _missing(given: object) -> tuple[str, ...]:
    return tuple([name for name in _OF_A_PROVIDER if not hasattr(given, name)])
