"""One request, from its bytes to a reply: faults, rules, limits, brain, cache, ledger, in this order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

from shoal.testing.wire._clock import Clock
from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._faults import Fault, Html, found
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange, Journal
from shoal.testing.wire._ledger import Ledger, Row
from shoal.testing.wire._limits import Buckets, Quota
from shoal.testing.wire._models import Model, models_from, shipped
from shoal.testing.wire._prefix import PrefixTree
from shoal.testing.wire._prompt import Lookup, Prompt
from shoal.testing.wire._rules import Violation, judged
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._settings import Settings
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted, fitted
from shoal.testing.wire._values import Ask, Brain, Dialect, Failure, Turn

_SERVERS = itertools.count(1)


class Refused(Exception):
    """The request gets an error instead of a reply.

    Args:
        failure: Which.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


@final
class World:
    """What one server knows and remembers.

    Args:
        settings: How it behaves.
        clock: What time it is.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.models: Mapping[str, Model] = {**shipped(), **models_from(settings.models)}
        self.journal = Journal()
        self.ledger = Ledger()
        self.seals = Seals(settings.secret)
        self.buckets: dict[str, Buckets] = {}
        self.under_way = 0
        self._ids = settings.ids if settings.ids is not None else f"server {next(_SERVERS)}"

    def __repr__(self) -> str:
        return f"<World {self.journal!r} {self.ledger!r}>"

    def new_id(self, prefix: str, exchange: Exchange, what: object = "") -> str:
        """Return an id that no other thing of this server has."""
        return prefix + digest(self._ids, str(exchange.number), str(what))

    def check_key(self, key: str | None) -> bool:
        """Say whether *key* may be used."""
        return bool(key) and (self.settings.keys is None or key in self.settings.keys)

    def enforce(
        self, exchange: Exchange, violations: Sequence[Violation], refuse: Callable[[Violation], Failure]
    ) -> None:
        """Record *violations*; refuse the request for the first that is enforced.

        Raises:
            Refused: With what *refuse* makes of it.
        """
        found = judged(violations, self.settings.skip)
        exchange.violations += found
        for violation in found:
            if violation.enforced:
                raise Refused(refuse(violation))

    def faults_of(self, exchange: Exchange) -> tuple[Fault, ...]:
        """Return what goes wrong with *exchange*, leaving aside what its turn brings."""
        faults = self.settings.faults
        return tuple(faults(exchange) if callable(faults) else faults)


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """What a dialect makes of a request for a reply.

    Args:
        ask: What the brain is asked.
        prompt: What the cache is asked.
        model: The model's facts.
        key: The API key.
        look: Asks the cache.
        stops: Stop sequences.
        best: What a cache could have read at best, of the tokens of the longest prefix that was ever sent.
        whole_blocks: That prefix is counted in whole blocks.
        counts_reads: Tokens read from the cache count towards the input limit.
        warming: The cache is to be filled and nothing said: the brain is not asked.
    """

    ask: Ask
    prompt: Prompt
    model: Model
    key: str
    look: Callable[[Prompt, float], Lookup]
    best: Callable[[int], int]
    stops: tuple[str, ...] = ()
    whole_blocks: bool = False
    counts_reads: bool = True
    warming: bool = False


@final
@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes. *serve* answers what is no request for a reply; `None` if it is one."""

    endpoint: str
    serve: Callable[[Exchange], Reply] | None = None


class DialectServer(Protocol):
    """A vendor's API."""

    name: Dialect

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes; `None` if this API has no such path."""
        ...

    def read(self, exchange: Exchange) -> Reading:
        """Check a request for a reply, fill in the record, and say what it asks.

        Raises:
            Refused: It breaks a rule.
        """
        ...

    def write(self, exchange: Exchange, reading: Reading, said: Fitted, row: Row, faults: Sequence[Fault]) -> Reply:
        """Return the reply; *faults* tell what is wrong with what stands in it."""
        ...

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error in the vendor's shape."""
        ...

    def quota_headers(self, quotas: Sequence[Quota], now_s: float) -> Mapping[str, str]:
        """Return what the vendor says of its limits."""
        ...


def _nothing(_ready_s: float) -> None:
    """Nothing was generated, so nothing is kept."""


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be sent, and what to do at its first byte."""

    reply: Reply
    faults: tuple[Fault, ...] = ()
    delay_s: float = 0.0
    started: Callable[[float], None] = _nothing


@final
class Engine:
    """Serves requests of several dialects with one brain.

    Args:
        world: What the server knows.
        brain: What stands in for the model.
        dialects: The APIs, asked in order whose a request is.
        oracle_life_s: The longest that a cache entry of each dialect can live.
    """

    def __init__(
        self, world: World, brain: Brain, dialects: Sequence[DialectServer], oracle_life_s: Mapping[Dialect, float]
    ) -> None:
        self._world = world
        self._brain = brain
        self.dialects = tuple(dialects)
        self._oracles = {name: PrefixTree(life_s) for name, life_s in oracle_life_s.items()}
        self._again: dict[bytes, Turn | Failure] = {}
        self._asked = 0
        self.brain_error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Engine {', '.join(dialect.name for dialect in self.dialects)}>"

    def serve(self, exchange: Exchange) -> Answer:
        """Return what to send for *exchange*, and fill in its record."""
        faults = self._world.faults_of(exchange)
        exchange.faults = faults
        for dialect in self.dialects:
            if route := dialect.route(exchange.incoming):
                exchange.endpoint = route.endpoint
                return self._serve(exchange, dialect, route, faults)
        return Answer(_not_found(exchange.incoming))

    def _serve(self, exchange: Exchange, dialect: DialectServer, route: Route, faults: tuple[Fault, ...]) -> Answer:
        if page := found(faults, Html):
            html = (("content-type", "text/html"), ("server", "cloudflare"))
            return Answer(Reply(page.status, html, page.body.encode()), faults)
        if failure := found(faults, Failure):
            return Answer(dialect.fail(failure, exchange), faults)
        try:
            if route.serve is not None:
                return Answer(route.serve(exchange), faults)
            return self._generate(exchange, dialect, faults)
        except Refused as refused:
            answer = Answer(dialect.fail(refused.failure, exchange), faults)
            return self._with_quotas(answer, exchange, dialect)

    def _generate(self, exchange: Exchange, dialect: DialectServer, faults: tuple[Fault, ...]) -> Answer:
        world, now_s = self._world, exchange.received_s
        reading = dialect.read(exchange)
        exchange.ask, exchange.model = reading.ask, reading.model.name
        exchange.prompt = reading.prompt
        lookup = reading.look(reading.prompt, now_s)
        total = reading.prompt.tokens
        self._admit(exchange, reading, total if reading.counts_reads else total - lookup.read)
        turn = Turn(stop="length") if reading.warming else self._turn(exchange, reading.ask)
        if isinstance(turn, Failure):
            raise Refused(turn)
        said = _fit(turn, reading)
        row = self._row(exchange, reading, lookup, said)
        oracle = self._oracles[dialect.name]
        exchange.row = row
        world.ledger.add(row)
        world.buckets[reading.key].spend(said.output)
        faults += turn.faults
        exchange.faults = faults

        def started(ready_s: float) -> None:
            lookup.commit(ready_s)
            oracle.add(reading.prompt, now_s, ready_s)

        answer = Answer(dialect.write(exchange, reading, said, row, faults), faults, turn.delay_s, started)
        return self._with_quotas(answer, exchange, dialect)

    def _admit(self, exchange: Exchange, reading: Reading, input_tokens: int) -> None:
        """Hold *exchange* against the limits.

        Raises:
            Refused: It is beyond one.
        """
        world, limits = self._world, self._world.settings.limits
        buckets = world.buckets.setdefault(reading.key, Buckets(limits))
        if limits.concurrency is not None and world.under_way > limits.concurrency:
            raise Refused(Failure(limits.overloaded, message="Too many requests are under way; try again later."))
        if quota := buckets.take(exchange.received_s, input_tokens):
            wait_s = max(1, -(-int(quota.wait_s * 1000) // 1000))
            message = f"This request would exceed your rate limit of {quota.limit} {quota.kind} per minute."
            raise Refused(Failure(429, message=message, retry_after=str(wait_s)))

    def _turn(self, exchange: Exchange, ask: Ask) -> Turn | Failure:
        """Return what the brain says; again what it said before, if that never arrived whole."""
        turn = self._again.pop(_body_key(exchange), None)
        if turn is None:
            try:
                turn = self._brain(replace(ask, number=self._asked))
            except Exception as exc:  # noqa: BLE001 - `serve` raises it again where the test sees it
                self.brain_error = self.brain_error or exc
                turn = Failure(400, message=f"the brain of this server failed: {exc}")
            self._asked += 1
        exchange.turn = turn
        return turn

    def settle(self, exchange: Exchange) -> None:
        """Take note of how delivery went: a reply that did not arrive is given again to the same request."""
        if isinstance(exchange.turn, Turn) and not exchange.whole:
            self._again[_body_key(exchange)] = exchange.turn

    def _row(self, exchange: Exchange, reading: Reading, lookup: Lookup, said: Fitted) -> Row:
        prompt, price = reading.prompt, reading.model.price
        uncached = prompt.tokens - lookup.read - sum(lookup.writes.values())
        oracle = self._oracles[reading.ask.dialect]
        best = reading.best(oracle.find(prompt, exchange.received_s, whole=reading.whole_blocks))
        return Row(
            exchange=exchange.number,
            dialect=reading.ask.dialect,
            model=reading.model.name,
            blocks=prompt.counted,
            read=lookup.read,
            writes=lookup.writes,
            uncached=uncached,
            output=said.output,
            reasoning=said.reasoning,
            boundary=prompt.whole_blocks(lookup.read),
            oracle_read=max(best, lookup.read),
            cost_usd=price
            and price.cost_usd(uncached=uncached, read=lookup.read, writes=lookup.writes, output=said.output),
        )

    def _with_quotas(self, answer: Answer, exchange: Exchange, dialect: DialectServer) -> Answer:
        now_s = exchange.received_s
        if exchange.key is None or exchange.key not in self._world.buckets:
            return answer
        quotas = self._world.buckets[exchange.key].quotas(now_s)
        told = dialect.quota_headers(quotas, now_s)
        return replace(answer, reply=replace(answer.reply, headers=(*answer.reply.headers, *told.items())))


def _fit(turn: Turn, reading: Reading) -> Fitted:
    """Cut *turn* to the budget of the request and to what is left of the window."""
    budget, over = reading.ask.max_tokens, "length"
    left = max(0, reading.model.window - reading.prompt.tokens)
    if budget is None or left < budget:
        budget, over = left, "window"
    return fitted(turn, budget=budget, over=over, stops=reading.stops)


def _body_key(exchange: Exchange) -> bytes:
    return hashlib.sha256(exchange.incoming.path.encode() + b"\0" + exchange.raw).digest()


def _not_found(incoming: Incoming) -> Reply:
    body = {"error": {"message": f"no vendor has {incoming.method} {incoming.path}", "type": "not_found_error"}}
    return Reply(404, (("content-type", "application/json"),), compact(body).encode())
