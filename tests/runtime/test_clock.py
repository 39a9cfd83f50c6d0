"""Time and run ids: passed in, so that a simulated swarm repeats to the byte."""

from __future__ import annotations

import random
import re
import time
import uuid

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.runtime import Clock, virtual

MILLIS = st.integers(0, 2**48 - 1)


def at(seconds: float, seed: int = 0) -> Clock:
    return Clock(unix=lambda: seconds, random=random.Random(seed))


@given(millis=MILLIS, seed=st.integers())
def test_an_id_is_a_uuid_of_version_7_that_says_when_it_was_made(millis: int, seed: int):
    made = uuid.UUID(at((millis + 0.5) / 1000, seed).new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == millis


@given(first=MILLIS, second=MILLIS, seed=st.integers())
def test_ids_sort_by_the_millisecond_of_their_making(first: int, second: int, seed: int):
    ids = [at((millis + 0.5) / 1000, seed + n).new_id() for n, millis in enumerate((first, second))]
    assert first == second or (ids[0] < ids[1]) == (first < second)


def test_an_id_is_written_in_lower_case_with_its_hyphens():
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", Clock().new_id())


def test_ids_of_one_instant_differ():
    clock = at(1_767_225_600.0)
    assert len({clock.new_id() for _ in range(10_000)}) == 10_000


def test_the_same_seed_and_times_give_the_same_ids():
    ids = [[clock.new_id() for _ in range(5)] for clock in (at(1.0, 7), at(1.0, 7), at(1.0, 8))]
    assert ids[0] == ids[1] != ids[2]


def test_a_clock_that_is_given_nothing_takes_the_systems():
    assert Clock().unix is time.time
    assert isinstance(Clock().random, random.SystemRandom)


@pytest.mark.anyio
async def test_a_virtual_clocks_wall_follows_the_loop():
    clock = virtual(began_at=1000.0)
    before = clock.unix(), clock.monotonic()
    await anyio.sleep(60)
    assert clock.unix() - before[0] == pytest.approx(60)
    assert clock.monotonic() - before[1] == pytest.approx(60)


@pytest.mark.anyio
async def test_a_virtual_clock_repeats():
    assert virtual(seed=3).random.random() == virtual(seed=3).random.random()
    assert virtual().unix() - anyio.current_time() == pytest.approx(1_767_225_600.0)
