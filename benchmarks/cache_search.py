"""The best that a cache could have read: a search over marker positions and send order that knows the future.

It starts from the prompts as a server saw them and takes neither markers nor times from the plan that it judges. What
it finds is played through the emulator's own caches. `reachable` is an upper bound: as if every position were marked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from shoal.testing.wire import Exchange
from shoal.testing.wire import Settings as WireSettings
from shoal.testing.wire._anthropic._cache import MarkerCache
from shoal.testing.wire._openai._caches import BreakpointCache, PrefixCache, points, stepped
from shoal.testing.wire._openai._chat_prompt import ends
from shoal.testing.wire._prompt import Block, Lookup, Prompt

MOST = 4
LOOK_BACK = 20
PATIENCE_S = 5.0
CLIMBS = 100
ENOUGH = 0.9999


@dataclass(frozen=True)
class Sent:
    """A request: what the model reads, when it was sent, and how long its first byte took."""

    prompt: Prompt
    start_s: float
    latency_s: float


class Cache(Protocol):
    """A vendor's cache, empty at first."""

    def look(self, prompt: Prompt, start_s: float) -> Lookup: ...


class Markers:
    """Anthropic's."""

    marks = True
    ttl = "5m"

    @staticmethod
    def takes(block: Block) -> bool:
        return True

    def __init__(self, least: int) -> None:
        self._cache = MarkerCache(WireSettings().cache)
        self._least = least

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        return self._cache.look(prompt, start_s, least=self._least)


class Points:
    """OpenAI's from GPT-5.6 on, over either API: texts of users and of the system take markers."""

    marks = True
    ttl = "30m"

    @staticmethod
    def takes(block: Block) -> bool:
        who, _, what = block.frame.partition(b" ")
        return who in (b"user", b"developer") and what in (b"text", b"input_text")

    def __init__(self, _least: int, mode: str = "implicit") -> None:
        self._cache = BreakpointCache()
        self._mode = mode

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        where = points(prompt.blocks, ends(prompt), self._mode)
        return self._cache.look(prompt, start_s, where=where, ttl="30m")


class Steps:
    """OpenAI's up to GPT-5.5: nothing to mark, only an order to choose."""

    marks = False
    ttl = ""

    @staticmethod
    def takes(block: Block) -> bool:
        return False

    def __init__(self, _least: int) -> None:
        self._cache = PrefixCache(600.0, lambda common, _total: stepped(common))

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        return self._cache.look(prompt, start_s)


class ExplicitPoints(Points):
    """The same, marking nothing by itself."""

    def __init__(self, least: int) -> None:
        super().__init__(least, "explicit")


class MixedPoints(Points):
    """The same, marking by itself until a conversation is *until* messages long, which hide what is in front of it."""

    until = 80

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        self._mode = "implicit" if len(ends(prompt)) <= self.until else "explicit"
        return super().look(prompt, start_s)


class SoonMixedPoints(MixedPoints):
    """The same, sooner."""

    until = 60


class SoonestMixedPoints(MixedPoints):
    """The same, soonest."""

    until = 40


EXPLICIT = (MixedPoints, SoonMixedPoints, SoonestMixedPoints, ExplicitPoints)
CACHES = {"markers": (Markers,), "points": (Points, *EXPLICIT), "responses": (Points, *EXPLICIT), "steps": (Steps,)}


def sent(exchanges: Sequence[Exchange]) -> list[Sent]:
    """Return what *exchanges* asked the cache, without their markers."""
    made: list[Sent] = []
    for exchange in exchanges:
        if exchange.prompt is not None and exchange.first_byte_s is not None:
            bare = replace(exchange.prompt, blocks=tuple([replace(b, marker=None) for b in exchange.prompt.blocks]))
            made.append(Sent(bare, exchange.received_s, exchange.first_byte_s - exchange.received_s))
    return made


class Search:
    """Looks for the markers and the order with which *requests* read most.

    Args:
        requests: In the order in which they were sent.
        cache: Name of the cache.
        least: The shortest prefix that it keeps, in tokens.
    """

    def __init__(self, requests: Sequence[Sent], cache: str, least: int) -> None:
        self._makes = CACHES[cache]
        self._make = self._makes[0]
        self._least = least
        self._keys = [request.prompt.keys() for request in requests]
        self._upto = [request.prompt.upto() for request in requests]
        self._requests = list(requests)

    def best(self) -> int:
        """Return the most tokens that any plan which it tries reads."""
        reachable, best = self.reachable(), 0
        for make in self._makes:
            self._make = make
            for order in self._orders():
                best = max(best, self._of_order(order))
                if self._make.marks and best >= reachable * ENOUGH:
                    return best
        return best

    def reachable(self) -> int:
        """Return what would be read if every position of every request were marked, in the best order."""
        return max(
            sum(self._prefix(request, order, number) for number, request in enumerate(order))
            for order in self._orders()
        )

    # --- orders

    def _orders(self) -> list[list[int]]:
        """Return orders to try: as they came, and with one of each burst in front of its others."""
        self._times = {tuple(range(len(self._requests))): [r.start_s for r in self._requests]}
        return [list(range(len(self._requests))), *self._led()]

    def _led(self) -> list[list[int]]:
        bursts = self._bursts()
        if not bursts:
            return []
        places = max(len(burst) for burst in bursts)
        orders: list[list[int]] = []
        for leader in sorted({0, places // 2, places - 1}):
            starts = [request.start_s for request in self._requests]
            for burst in bursts:
                first = burst[min(leader, len(burst) - 1)]
                began = min(starts[number] for number in burst)
                starts[first] = began
                ready = began + min(PATIENCE_S, self._requests[first].latency_s)
                for number in burst:
                    if number != first:
                        starts[number] = ready
            order = sorted(range(len(starts)), key=lambda number: (starts[number], number))
            self._times[tuple(order)] = starts
            orders.append(order)
        return orders

    def _bursts(self) -> list[list[int]]:
        """Return the groups of requests that share a prefix and were sent before one of them was answered."""
        bursts: list[list[int]] = []
        for number, request in enumerate(self._requests):
            for burst in bursts:
                first = self._requests[burst[0]]
                together = request.start_s < first.start_s + first.latency_s
                if together and self._shared(burst[0], number) >= 0:
                    burst.append(number)
                    break
            else:
                bursts.append([number])
        return [burst for burst in bursts if len(burst) > 2]

    def _shared(self, one: int, other: int) -> int:
        """Return the last position that two requests have in common; -1 for none."""
        pairs = zip(self._keys[one], self._keys[other], strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)) - 1

    # --- markers

    def _prefix(self, request: int, order: Sequence[int], place: int) -> int:
        found = self._source(request, order, place)
        return 0 if found is None else self._read(request, found[1])

    def _read(self, request: int, position: int) -> int:
        tokens = self._upto[request][position] if position >= 0 else 0
        return tokens if tokens >= self._least else 0

    def _source(self, request: int, order: Sequence[int], place: int) -> tuple[int, int] | None:
        """Return the earlier request with the longest common prefix that can be read, and where that ends."""
        starts = self._times[tuple(order)]
        best: tuple[int, int] | None = None
        for earlier in reversed(order[:place]):
            if starts[earlier] + self._requests[earlier].latency_s <= starts[request]:
                shared = self._shared(earlier, request)
                if shared >= 0 and (best is None or shared > best[1]):
                    best = (earlier, shared)
        return best

    def _of_order(self, order: Sequence[int]) -> int:
        marks: list[set[int]] = [
            {len(keys) - 1} if self._make.takes(request.prompt.blocks[-1]) else set()
            for keys, request in zip(self._keys, self._requests, strict=True)
        ]
        if not self._make.marks:
            return sum(self._play(order, marks))
        wanted = [self._source(request, order, place) for place, request in enumerate(order)]
        goals = {
            request: found
            for request, found in zip(order, wanted, strict=True)
            if found and self._read(request, found[1])
        }
        for request, (_, position) in goals.items():
            self._want(marks, order, request, position)
        return self._climb(order, marks, goals)

    def _want(self, marks: list[set[int]], order: Sequence[int], request: int, position: int) -> None:
        """Have the first request that can write at *position* do so, and *request* read there."""
        position = self._snapped(request, position)
        if position < 0:
            return
        for earlier in self._writers(order, request, position):
            if position in marks[earlier]:
                break
            if len(marks[earlier]) < MOST:
                marks[earlier].add(position)
                break
        seen = any(position <= mark < position + LOOK_BACK for mark in marks[request])
        if not seen and (len(marks[request]) < MOST or self._make in EXPLICIT):
            marks[request].add(position)  # what is only read takes nothing from what is written

    def _snapped(self, request: int, position: int) -> int:
        blocks = self._requests[request].prompt.blocks
        while position >= 0 and not self._make.takes(blocks[position]):
            position -= 1
        return position

    def _writers(self, order: Sequence[int], request: int, position: int) -> list[int]:
        """Return the requests in front of *request* that begin alike up to *position*, first to last."""
        key = self._keys[request][position]
        before = order[: order.index(request)]
        return [r for r in before if position < len(self._keys[r]) and self._keys[r][position] == key]

    def _climb(self, order: Sequence[int], marks: list[set[int]], goals: Mapping[int, tuple[int, int]]) -> int:
        """Improve *marks* one request at a time, while that reads more, and return what they read."""
        reads = self._play(order, marks)
        tried = 0
        for request, (_, position) in sorted(goals.items(), key=lambda goal: -self._read(goal[0], goal[1][1])):
            short = self._read(request, position) - reads[order.index(request)]
            for writer in self._writers(order, request, position) if short > 0 else ():
                for gone in [None, *sorted(marks[writer])]:
                    changed = [set(one) for one in marks]
                    changed[writer] = (changed[writer] - {gone}) | {position}
                    changed[request].add(position)
                    over = self._make not in EXPLICIT and any(len(one) > MOST for one in changed)
                    if over or tried > CLIMBS:
                        continue
                    tried += 1
                    now = self._play(order, changed)
                    if sum(now) > sum(reads):
                        marks, reads = changed, now
        return sum(reads)

    def _play(self, order: Sequence[int], marks: Sequence[set[int]]) -> list[int]:
        """Return what each request of *order* reads when it is sent with *marks*, by the emulator's cache."""
        starts = self._times[tuple(order)]
        cache = self._make(self._least)
        waiting: list[tuple[float, Lookup]] = []
        reads: list[int] = []
        for request in order:
            for ready_s, lookup in [one for one in waiting if one[0] <= starts[request]]:
                lookup.commit(ready_s)
                waiting.remove((ready_s, lookup))
            one = self._requests[request]
            blocks = [
                replace(block, marker=self._make.ttl) if at in marks[request] and self._make.takes(block) else block
                for at, block in enumerate(one.prompt.blocks)
            ]
            lookup = cache.look(replace(one.prompt, blocks=tuple(blocks)), starts[request])
            reads.append(lookup.read)
            waiting.append((starts[request] + one.latency_s, lookup))
        return reads
