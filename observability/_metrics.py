"""Metrics of a swarm through OpenTelemetry: what runs used, how full their regions are, what waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, final

from shoal.observability import names
from shoal.runtime import Event, SwarmStatistics
from shoal.runtime.events import (
    InferenceCompleted,
    InferenceFailed,
    InferenceStarted,
    LaneDegraded,
    RunEnded,
    RunSpawned,
    StageEntered,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Boundaries of `gen_ai.client.token.usage`. Source: the conventions for generative AI metrics."""
SECOND_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Boundaries of `gen_ai.client.operation.duration`. Source: there too."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
COMMIT_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class Watched(Protocol):
    """What is told of a swarm beside its events."""

    def statistics(self) -> SwarmStatistics:
        """Return how busy it is."""
        ...

    def budget_of(self, run_id: str, region: str) -> int | None:
        """Return the budget of a region of a run that lives, in tokens; `None` where that is not known."""
        ...


@final
class _Seen:
    """What is known of one run."""

    __slots__ = ("agent", "asked", "stage")

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.stage = ""
        self.asked: dict[int, tuple[InferenceStarted, float]] = {}


@final
class Metrics:
    """Measures runs: give it to a swarm as an observer, and let it `watch` the swarm for what no event says.

    Nothing that happens here reaches a run: a defect is logged, counted, and costs that one measurement.

    Args:
        provider: OpenTelemetry's; `None` takes the one that the program has set.
        on_close: Called by `close`, such as to stop an exporter of ours; `None` for nothing.
        port: Where a Prometheus fetches them; `None` where none does.
        failures: Says how many exports came to nothing.
    """

    def __init__(
        self,
        provider: MeterProvider | None = None,
        *,
        on_close: Callable[[], object] | None = None,
        port: int | None = None,
        failures: Callable[[], int] = int,
    ) -> None:
        from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415 - only those who measure pay for it

        self._meter = (provider or get_meter_provider()).get_meter(names.SCOPE)
        self._on_close = on_close
        self.port = port
        self._failures = failures
        self._runs: dict[str, _Seen] = {}
        self._watched: Watched | None = None
        self.faults = 0
        """How many events could not be measured."""
        meter = self._meter
        self._tokens = meter.create_histogram(
            names.METRIC_TOKEN_USAGE,
            "{token}",
            "Tokens of a request and of its reply",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            names.METRIC_OPERATION_DURATION,
            "s",
            "Time from a request to its whole reply",
            explicit_bucket_boundaries_advisory=SECOND_BUCKETS,
        )
        self._fill = meter.create_histogram(
            names.METRIC_REGION_FILL,
            "1",
            "Share of a region's budget that a request shows",
            explicit_bucket_boundaries_advisory=SHARES,
        )
        self._hits = meter.create_histogram(
            names.METRIC_CACHE_HIT_RATIO,
            "1",
            "Share of a request's input that came from a cache",
            explicit_bucket_boundaries_advisory=SHARES,
        )
        self._cost = meter.create_counter(names.METRIC_COST, "{USD}", "What requests cost, by whom it was for")
        self._degraded = meter.create_counter(names.METRIC_LANE_DEGRADED, "{job}", "Jobs that gave their fallback")
        self._failed = meter.create_counter(names.METRIC_LANE_FAILED, "{job}", "Jobs that failed for a fault of theirs")
        self._commits = meter.create_histogram(
            names.METRIC_COMMIT_DURATION,
            "s",
            "Time of one commit of the journal",
            explicit_bucket_boundaries_advisory=COMMIT_BUCKETS,
        )

    def __repr__(self) -> str:
        return f"<Metrics of {len(self._runs)} runs>"

    @property
    def failed(self) -> int:
        """How many times the figures were sent and not taken; the next time sends them again."""
        return self._failures()

    def watch(self, swarm: Watched) -> None:
        """Measure what no event of *swarm* says: its runs by state, pools, lanes, restarts."""
        self._watched = swarm
        gauge, counter = self._meter.create_observable_gauge, self._meter.create_observable_counter
        gauge(names.METRIC_RUNS, [self._of(_runs)], "{run}", "Runs that this process hosts")
        gauge(names.METRIC_POOL_BUSY, [self._of(_busy)], "{request}", "What is in flight")
        gauge(names.METRIC_POOL_QUEUED, [self._of(_queued)], "{request}", "What waits for its turn")
        counter(names.METRIC_POOL_WAIT, [self._of(_waited)], "s", "Time that was waited so far")
        gauge(names.METRIC_LANE_QUEUED, [self._of(_lane_queued)], "{job}", "Jobs that wait")
        counter(names.METRIC_RESTARTS, [self._of(_restarts)], "{restart}", "Restarts by a supervisor")

    def committed(self, seconds: float, events: int) -> None:
        """Take note of a commit of the journal. Safe to call in a thread."""
        self._commits.record(seconds, {names.METRIC_EVENTS: "one" if events == 1 else "many"})

    def close(self) -> None:
        """Stop what was started for it, which sends the newest figures, and watch no longer."""
        try:
            if self._on_close is not None:
                self._on_close()
        finally:
            self._watched = None

    def _of(
        self, read: Callable[[SwarmStatistics], Iterable[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            watched = self._watched
            return () if watched is None else tuple(read(watched.statistics()))

        return observe

    # --- events

    def __call__(self, event: Event) -> None:
        """Take *event*, which is durable."""
        try:
            self._take(event)
        except Exception as exc:  # noqa: BLE001 - a run must not end because of who measures it
            self.faults += 1
            if self.faults == 1:
                import structlog  # noqa: PLC0415 - only a defect of ours pays for it

                structlog.stdlib.get_logger(__name__).warning(
                    "an event could not be measured", run_id=event.run_id, seq=event.seq, exc_info=exc
                )

    def _take(self, event: Event) -> None:
        payload, run_id = event.payload, event.run_id
        match payload:
            case RunSpawned(name):
                self._runs[run_id] = _Seen(name)
            case RunEnded():
                self._runs.pop(run_id, None)
            case StageEntered(stage):
                self._seen(run_id).stage = stage
            case InferenceStarted():
                self._seen(run_id).asked[event.seq] = (payload, event.at)
            case InferenceCompleted():
                self._completed(event, payload)
            case InferenceFailed(started=started):
                self._seen(run_id).asked.pop(started, None)
            case LaneDegraded(lane, reason=reason):
                self._degraded.add(1, {names.METRIC_LANE: lane, names.REASON: reason})
                if reason not in ("dropped", "budget", "lane_down"):
                    self._failed.add(1, {names.METRIC_LANE: lane, names.REASON: reason})
            case _:
                pass

    def _seen(self, run_id: str) -> _Seen:
        """Return what is known of a run; of one that an earlier process began, its agent is not."""
        return self._runs.setdefault(run_id, _Seen(""))

    def _completed(self, event: Event, done: InferenceCompleted) -> None:
        seen = self._seen(event.run_id)
        begun = seen.asked.pop(done.started, None)
        if begun is None:
            return  # it was sent before anybody measured
        started, at = begun
        named = {
            names.OPERATION: "chat",
            names.PROVIDER: names.vendor(started.provider),
            names.REQUEST_MODEL: started.model,
            names.AGENT_NAME: seen.agent,
        }
        uncached, read, written, written_long, output = done.usage[:5]
        sent = uncached + read + written + written_long
        self._tokens.record(sent, {**named, names.METRIC_TOKEN_TYPE: "input"})
        self._tokens.record(output, {**named, names.METRIC_TOKEN_TYPE: "output"})
        self._seconds.record(max(0.0, event.at - at), named)
        placed = {names.AGENT_NAME: seen.agent, names.STAGE: seen.stage, names.REQUEST_MODEL: started.model}
        if sent:
            self._hits.record(read / sent, placed)
        for share in done.attribution:
            where = {**placed, names.METRIC_REGION: share.owner}
            if share.cost:
                self._cost.add(float(share.cost), where)
            tokens = share.uncached + share.cache_read + share.cache_write + share.cache_write_long
            budget = None if self._watched is None else self._watched.budget_of(event.run_id, share.owner)
            if done.purpose == "stage" and budget:
                self._fill.record(tokens / budget, where)


# --- what a swarm says of itself


def _observed(value: float | Decimal, **attributes: str) -> Observation:
    from opentelemetry.metrics import Observation  # noqa: PLC0415 - see `Metrics`

    return Observation(float(value), {f"shoal.{name}": text for name, text in attributes.items()})


def _runs(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(count, agent=agent, state=state) for (agent, state), count in now.runs.items()]


def _busy(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(pool.busy, pool=name) for name, pool in now.pools.items()]


def _queued(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(pool.queued, pool=name) for name, pool in now.pools.items()]


def _waited(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(pool.waited_s, pool=name) for name, pool in now.pools.items()]


def _lane_queued(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(lane.queued, lane=name) for name, lane in now.lanes.items()]


def _restarts(now: SwarmStatistics) -> Iterable[Observation]:
    return [_observed(count, supervisor=path) for path, count in now.restarts.items()]
