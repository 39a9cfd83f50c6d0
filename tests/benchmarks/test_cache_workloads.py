"""Hits of whole runs: at least 99 of 100 tokens that a search which knows the future can have read."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.wall_limit(60)

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    """The benchmark, with the modules beside it."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("benchmark_of_caches", FOLDER / "cache.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        yield made
    finally:
        sys.path.remove(str(FOLDER))


PAIRS = [
    ("research", "markers"),
    ("research", "points"),
    ("research", "responses"),
    ("pipeline", "markers"),
    ("pipeline", "responses"),
    ("pipeline", "steps"),
    ("fan-out", "markers"),
    ("fan-out", "points"),
    ("fan-out", "steps"),
    ("corpus", "markers"),
    ("corpus", "points"),
    ("corpus", "responses"),
    ("gather-then-plan", "markers"),
    ("gather-then-plan", "points"),
    ("gather-then-plan", "responses"),
]


@pytest.mark.parametrize(("name", "cache"), PAIRS)
def test_a_run_reads_what_can_be_read(benchmark: ModuleType, name: str, cache: str):
    make = benchmark.WORKLOADS[name]
    read, best, server = benchmark.hits(make, cache)
    assert not server.violations
    assert read >= 0.99 * best > 0


def test_a_chat_reads_what_can_be_read(benchmark: ModuleType):
    read, best, _ = benchmark.hits(lambda: benchmark.chat(50), "markers")
    assert read >= 0.99 * best > 0


def test_only_the_plan_stands_behind_the_last_marker(benchmark: ModuleType):
    server = benchmark.played(benchmark.WORKLOADS["gather-then-plan"](), "markers")
    assert benchmark.marked_front(server) >= 0.99


def test_thirty_workers_sent_at_once_cost_less_than_half_of_a_flat_list(benchmark: ModuleType):
    make = benchmark.WORKLOADS["fan-out"]
    ours, listed = benchmark.played(make(), "markers"), benchmark.flat(make(), "markers")
    assert benchmark.cost_usd(ours, "markers") < benchmark.cost_usd(listed, "markers") / 2


def test_without_a_leader_workers_miss_what_they_share(benchmark: ModuleType):
    make = benchmark.WORKLOADS["fan-out"]
    led, unled = (benchmark.played(make(), "markers", leads=leads) for leads in (True, False))
    assert unled.ledger.read < 0.8 * led.ledger.read
