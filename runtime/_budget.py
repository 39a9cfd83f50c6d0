"""Budgets of runs and of everything below them: the worst case is set aside before a request is sent.

A request waits where only other requests' worst cases stand in its way, since most of them settle lower. So however
many children ask at once, none of them goes beyond the limit, and none is stopped that would have stayed below it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, final

import anyio

from shoal.blueprints import Blueprint, Budget
from shoal.errors import SpawnRefused
from shoal.providers import Price
from shoal.runtime._clock import Clock
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime.context import rates_of
from shoal.runtime.events import BudgetGiven, BudgetReached, InferenceCompleted
from shoal.runtime.journal import Journal
from shoal.runtime.state import RunState

_BUCKETS = 5
"""Counters of a usage that are billed."""


@final
@dataclass(frozen=True, slots=True)
class Worst:
    """What a request may cost at most: tokens of prompt and reply, and USD."""

    tokens: int
    cost: Decimal

    @classmethod
    def of(cls, serving: Serving, prompt_tokens: int, reply_tokens: int) -> Worst:
        """Return the worst case of a request: nothing of its prompt is cached, and its reply takes all it may."""
        price = serving.profile.price
        cost = Decimal(0) if price is None else _dearest(price, prompt_tokens, reply_tokens)
        return cls(prompt_tokens + reply_tokens, cost)


def _dearest(price: Price, prompt_tokens: int, reply_tokens: int) -> Decimal:
    uncached, _, write, write_long, output = rates_of(price, prompt_tokens)
    return prompt_tokens * max(uncached, write, write_long) + reply_tokens * output


@final
class Account:
    """What a run and everything below it used of a budget, and what is set aside.

    Args:
        run_id: The run whose budget it is.
        budget: The budget.
    """

    def __init__(self, run_id: str, budget: Budget) -> None:
        self.run_id = run_id
        self.budget = budget
        self.cost = Decimal(0)
        self.tokens = 0
        self.aside_cost = Decimal(0)
        self.aside_tokens = 0
        self.requests = 0
        """Requests that are on their way."""
        self.told = False
        """Its run is about to be told that the budget is reached."""
        self._ran_s = 0.0
        self._since: float | None = None
        self._changed = anyio.Event()

    def __repr__(self) -> str:
        return f"<Account {self.run_id} {self.cost} USD, {self.tokens} tokens>"

    def follow(self, state: RunState, now: float) -> None:
        """Take over where the run stands whose budget it is; *now* is unix seconds."""
        self.budget = state.budget
        self._ran_s = state.ran_s
        self._since = min(now, state.last_at) if state.phase == "running" else None
        self.pulse()

    def ran_s(self, now: float) -> float:
        """Return how long its run has been running, in seconds, pauses excluded."""
        return self._ran_s + (0.0 if self._since is None else max(0.0, now - self._since))

    def pulse(self) -> None:
        """Wake whoever waits."""
        self._changed.set()
        self._changed = anyio.Event()

    async def changed(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    def short_of(self, worst: Worst, now: float, *, aside: bool) -> BudgetReached | None:
        """Return which limit does not take *worst*; *aside* counts what is set aside for other requests too."""
        cost = self.cost + (self.aside_cost if aside else 0)
        tokens = self.tokens + (self.aside_tokens if aside else 0)
        limits = self.budget
        if limits.max_wall_s is not None and self.ran_s(now) >= limits.max_wall_s:
            return BudgetReached("max_wall_s", str(limits.max_wall_s), f"{self.ran_s(now):.1f}", "0")
        if limits.max_cost_usd is not None and cost + worst.cost > limits.max_cost_usd:
            return BudgetReached("max_cost_usd", _usd(limits.max_cost_usd), _usd(cost), _usd(worst.cost))
        if limits.max_tokens is not None and tokens + worst.tokens > limits.max_tokens:
            return BudgetReached("max_tokens", str(limits.max_tokens), str(tokens), str(worst.tokens))
        return None

    def set_aside(self, worst: Worst, sign: int = 1) -> None:
        """Set *worst* aside for a request, or give it back (*sign* -1)."""
        self.aside_cost += sign * worst.cost
        self.aside_tokens += sign * worst.tokens
        self.requests += sign

    def spend(self, payload: InferenceCompleted) -> None:
        """Count what a request was billed."""
        self.cost += payload.cost or Decimal(0)
        self.tokens += sum(payload.usage[:_BUCKETS])


def _usd(amount: Decimal) -> str:
    return format(amount.normalize(), "f")


Tell: TypeAlias = Callable[[str, BudgetReached], None]


@final
class Purses:
    """The budgets of the runs that are hosted here.

    Args:
        journal: Where earlier spending stands.
        clock: Time.
        load: Returns the state that a run's journal adds up to.
        tell: Has a run told that its budget is reached.
    """

    def __init__(self, journal: Journal, clock: Clock, load: Callable[[str], RunState], tell: Tell) -> None:
        self._journal = journal
        self._clock = clock
        self._load = load
        self._tell = tell
        self._accounts: dict[str, Account] = {}

    def moved(self, live: Live) -> None:
        """Take note of where a run stands whose budget, or one above it, may be waited for."""
        known = self._accounts.get(live.run_id)
        if known is not None:
            known.follow(live.state, self._clock.unix())
        for run_id in live.state.made_by.budgets:
            if run_id in self._accounts:
                self._accounts[run_id].pulse()

    def told(self, run_id: str) -> None:
        """Take note that a run was told that its budget is reached: it and what stands below it are paused, or over."""
        account = self._accounts.get(run_id)
        if account is not None:
            account.told = False
            account.pulse()

    def forget(self, live: Live) -> None:
        """Forget the budget of a run that is over."""
        self._accounts.pop(live.run_id, None)

    @asynccontextmanager
    async def aside(self, live: Live, worst: Worst) -> AsyncGenerator[Sequence[Account] | None]:
        """Set *worst* aside in every budget that a run is under, while the block sends its request.

        Yields:
            The accounts that are to be told what the request was billed; `None` where a budget is reached: nothing may
            be sent, and the run is paused or over by now.
        """
        ids = live.state.made_by.budgets
        if not ids:
            yield ()
            return
        accounts = [self._account(run_id) for run_id in ids]
        if not await self._room(live, accounts, worst):
            yield None
            return
        for account in accounts:
            account.set_aside(worst)
        try:
            yield accounts
        finally:
            for account in accounts:
                account.set_aside(worst, -1)
                account.pulse()

    async def _room(self, live: Live, accounts: Sequence[Account], worst: Worst) -> bool:
        while not live.over and live.state.phase == "running":
            now = self._clock.unix()
            full = next((a for a in accounts if a.short_of(worst, now, aside=True) is not None), None)
            if full is None:
                return True
            reached = full.short_of(worst, now, aside=False)
            if (reached is not None or not full.requests) and not full.told:
                full.told = True
                why = reached or full.short_of(worst, now, aside=True)
                assert why is not None  # it is full, so it is short of something
                self._tell(full.run_id, why)
            await full.changed()
        return False

    def check_prices(
        self, servings: Sequence[Serving], above: Sequence[str], blueprint: Blueprint, given: BudgetGiven | None
    ) -> None:
        """Refuse a run that is under a budget in USD and may be served by a model whose price nobody knows.

        Args:
            servings: Who may serve it.
            above: The runs above it whose budgets it is under.
            blueprint: What it runs.
            given: Limits in place of its blueprint's.

        Raises:
            SpawnRefused: It may; the message names the model and the key that gives it a price.
        """
        unpriced = next((serving for serving in servings if serving.profile.price is None), None)
        if unpriced is None:
            return
        in_usd = given is not None and given.max_cost_usd is not None
        own = blueprint.budget if in_usd or blueprint.budget.max_cost_usd is not None else None
        budgets = [*(self._account(run_id).budget for run_id in above), *([] if own is None else [own])]
        if any(b.unknown_price == "refuse" and (b is own or b.max_cost_usd is not None) for b in budgets):
            raise SpawnRefused(
                f"{blueprint.name!r} has a budget in USD, and nobody knows the price of {unpriced.label}; give it in "
                f'`[models."{unpriced.model}"] price`, or go on without: `unknown_price = "ignore"` in `[budget]`'
            )

    def _account(self, run_id: str) -> Account:
        account = self._accounts.get(run_id)
        if account is None:
            state = self._load(run_id)
            account = self._accounts[run_id] = Account(run_id, state.budget)
            account.follow(state, self._clock.unix())
            for row in self._journal.runs(root=state.made_by.root):
                for event in self._journal.read(row.run_id) if self._under(row.run_id, run_id) else ():
                    if isinstance(event.payload, InferenceCompleted):
                        account.spend(event.payload)
        return account

    def _under(self, run_id: str, owner: str) -> bool:
        spawned = next(self._journal.read(run_id)).payload
        # Its own budget may be one that its blueprint was given since.
        return run_id == owner or owner in getattr(spawned, "budgets", ())
