"""The report of a run: its figures are the journal's, and the page needs nothing but itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import pytest

from shoal.blueprints import Blueprint, CallerSeed, FanOut, Nudge, Region, Stage
from shoal.observability import figures_of, html_of
from shoal.providers import Provider, Usage
from shoal.runtime import MemoryJournal, Swarm, account_of, virtual
from shoal.runtime.events import InferenceCompleted
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

TASK = Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable")
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)
QUIET = Nudge(enabled=False)
TWO = Blueprint("two", (Stage("a", nudge=QUIET), Stage("b", nudge=QUIET)), regions=(TASK, TALK))
FAN = Blueprint(
    "fan",
    (
        Stage("split", mode="fan_out", fan_out=FanOut(worker_stage="read", merge_stage="merge")),
        Stage("merge", transitions=(), nudge=QUIET),
        Stage("read", transitions=(), nudge=QUIET, allow_as_worker=True),
    ),
    regions=(TASK, TALK),
)


async def journal_of(made: Blueprint, provider: Provider, *, task: str = "the task", pause: bool = False) -> Any:
    """Return the journal of a run of *made*, and the run's id."""
    journal = MemoryJournal()
    with anyio.fail_after(86_400):
        async with Swarm([provider], journal, clock=virtual()) as swarm:
            run = await swarm.spawn(made, task=task)
            if pause:
                await anyio.sleep(1)
                await run.pause("coffee")
                await anyio.sleep(100)
                await run.resume()
            await run.result()
    return journal, run.run_id


def scripted(*replies: Any, **more: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"}, **more)


async def test_the_calls_of_a_report_are_those_of_the_journal():
    journal, run_id = await journal_of(TWO, scripted(Say("one", delay_s=2), "two"))
    done = [e.payload for e in journal.read(run_id) if isinstance(e.payload, InferenceCompleted)]
    calls = figures_of(journal, run_id)["calls"]
    assert [(each["purpose"], each["cost_usd"], each["output"]) for each in calls] == [
        (each.purpose, format(each.cost or Decimal(0), "f"), each.usage[4]) for each in done
    ]
    assert [sum(each["tokens"].values()) for each in calls] == [sum(each.usage[:4]) for each in done]


async def test_the_regions_of_a_report_sum_up_to_what_was_billed():
    journal, run_id = await journal_of(TWO, scripted(Say("one", usage=Usage(100, 50, 0, 0, 7)), "two"))
    figures = figures_of(journal, run_id)
    total = account_of(journal, (run_id,)).total
    assert sum(Decimal(each["cost_usd"]) for each in figures["regions"]) == total.cost
    assert sum(each["usage"]["cache_read"] for each in figures["regions"]) == total.usage.cache_read
    assert figures["ledger"] == account_of(journal, (run_id,)).plain()


async def test_visits_and_pauses_stand_with_their_times():
    journal, run_id = await journal_of(TWO, scripted(Say("one", delay_s=5), Say("two", delay_s=7)), pause=True)
    figures = figures_of(journal, run_id)
    assert [(each["stage"], each["visit"], each["reason"]) for each in figures["visits"]] == [
        ("a", 1, "done"),
        ("b", 1, "done"),
    ]
    (pause,) = figures["pauses"]
    assert pause["reason"] == "coffee"
    assert pause["to"] - pause["from"] == pytest.approx(100, abs=1)


async def test_a_run_that_is_not_over_has_an_open_visit():
    journal = MemoryJournal()
    async with Swarm([scripted(Say("late", delay_s=100))], journal, clock=virtual()) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await anyio.sleep(1)
        figures = figures_of(journal, run.run_id)
        assert [each["to"] for each in figures["visits"]] == [None]
        assert "<svg" in html_of(figures)


async def test_the_tree_of_a_report_is_the_run_and_what_is_below_it_in_order():
    items = Say(calls=(call("fan_out", items=[{"id": "1", "task": "a"}, {"id": "2", "task": "b"}]),))
    journal, run_id = await journal_of(FAN, scripted(items, "x", "y", "merged"))
    tree = figures_of(journal, run_id)["tree"]
    assert [(each["depth"], each["parent"]) for each in tree] == [(0, None), (1, run_id), (1, run_id)]
    child = tree[1]["run_id"]
    assert [each["run_id"] for each in figures_of(journal, child)["tree"]] == [child]


async def test_a_price_that_nobody_knows_stays_unknown():
    journal, run_id = await journal_of(TWO, scripted("one", "two", price=None))
    figures = figures_of(journal, run_id)
    assert {each["cost_usd"] for each in figures["regions"]} == {None}
    assert "unknown price" in html_of(figures)


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.links: list[str] = []
        self.figures = ""
        self.reading = False
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "action", "data", "xlink:href")]
        self.reading = tag == "script" and ("id", "figures") in attrs

    def handle_endtag(self, tag: str) -> None:
        self.reading = False

    def handle_data(self, data: str) -> None:
        if self.reading:
            self.figures += data
        else:
            self.text.append(data)


async def test_a_page_holds_its_figures_as_json():
    journal, run_id = await journal_of(TWO, scripted("one", "two"))
    figures = figures_of(journal, run_id)
    assert json.loads(Page(html_of(figures)).figures) == json.loads(json.dumps(figures))


async def test_a_page_asks_for_nothing_over_the_network_and_runs_nothing():
    journal, run_id = await journal_of(TWO, scripted("one", "two"))
    page = Page(html_of(figures_of(journal, run_id)))
    assert page.links == []
    assert page.opened.count("script") == 1
    assert not re.search(r"url\(|@import|https?://", html_of(figures_of(journal, run_id)))


async def test_what_a_run_says_cannot_break_out_of_its_page():
    evil = "</script><script>alert(1)</script><img src=x onerror=y>"
    journal, run_id = await journal_of(TWO, scripted("one", "two"), task=evil)
    page = Page(html_of(figures_of(journal, run_id)))
    assert page.opened.count("script") == 1
    assert "img" not in page.opened
    assert evil in "".join(page.text)


def rects(page: str) -> Iterator[tuple[float, ...]]:
    for found in re.finditer(r'<rect x="([\d.]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)"', page):
        yield tuple(float(value) for value in found.groups())


async def test_no_plot_leaves_its_frame():
    journal, run_id = await journal_of(TWO, scripted(Say("one", delay_s=3), "two"), pause=True)
    page = html_of(figures_of(journal, run_id))
    assert all(x + wide <= 961 and y >= -0.01 and wide > 0 for x, y, wide, _ in rects(page))


async def test_the_bars_of_a_call_stand_on_each_other_and_sum_up_to_its_tokens():
    journal, run_id = await journal_of(TWO, scripted("one", "two"))
    figures = figures_of(journal, run_id)
    page = html_of(figures)
    window = page[
        page.index("Tokens by region over the calls") : page.index("by region</h2>", page.index("over the calls<"))
    ]
    heights = sum(high for _, _, _, high in rects(window))
    calls = [sum(each["tokens"].values()) for each in figures["calls"] if each["purpose"] == "stage"]
    assert heights == pytest.approx(260 * sum(calls) / max(calls), abs=0.2)


@pytest.mark.parametrize(("price", "heading"), [(True, "Cost by region"), (False, "Tokens by region")])
async def test_where_nothing_cost_anything_tokens_are_drawn(price: bool, heading: str):
    more: dict[str, Any] = {} if price else {"price": None}
    journal, run_id = await journal_of(TWO, scripted("one", "two", **more))
    assert f"<h2>{heading}</h2>" in html_of(figures_of(journal, run_id))


async def test_a_run_that_did_nothing_has_a_page_too(tmp_path: Path):
    journal = MemoryJournal()
    async with Swarm([scripted(Say("late", delay_s=100))], journal, clock=virtual()) as swarm:
        run = await swarm.spawn(TWO, task="x")
        page = html_of(figures_of(journal, run.run_id))
        await run.cancel()
    assert "No request was answered." in page


async def test_a_report_names_the_flags_of_its_run():
    journal = MemoryJournal()
    async with Swarm([scripted(Say("", finish="refusal"), "told")], journal, clock=virtual()) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await run.result()
    figures = figures_of(journal, run.run_id)
    assert figures["run"]["flags"] == {"replies_refused": 1}
    assert "<p>flags: replies_refused</p>" in html_of(figures)
    assert "flags:" not in html_of({**figures, "run": {**figures["run"], "flags": {}}})


async def test_a_run_that_was_cancelled_in_a_stage_closes_its_visit():
    journal = MemoryJournal()
    async with Swarm([scripted(Say("late", delay_s=100))], journal, clock=virtual()) as swarm:
        run = await swarm.spawn(TWO, task="x")
        await anyio.sleep(5)
        await run.cancel("enough")
    figures = figures_of(journal, run.run_id)
    assert figures["visits"][0]["to"] is not None
    assert figures["run"]["reason"] == "enough"
    assert "It entered no stage." in html_of({**figures, "visits": []})
