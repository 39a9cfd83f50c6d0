"""Specs are checked before anything starts."""

from __future__ import annotations

import functools
import math

import anyio
import pytest
from troupe import Adder, Troupe

from shoal.actors import ChildSpec, DynamicSupervisor, Supervisor, Worker, check_childspecs
from shoal.errors import ChildSpecInvalid


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"id": ""}, "a part of a path"),
        ({"id": "a/b"}, "a part of a path"),
        ({"id": 7}, "a part of a path"),
        ({"start": 7}, "`start` is 7"),
        ({"restart": "always"}, "`restart` is 'always'; take one of 'permanent', 'transient', 'temporary'"),
        ({"significant": True}, "`significant` is for a child that can end"),
        ({"shutdown_s": -1}, "`shutdown_s` is -1"),
        ({"shutdown_s": math.nan}, "`shutdown_s` is nan"),
        ({"max_restarts": -1}, "`max_restarts` is -1"),
        ({"max_restarts": 1.5}, "`max_restarts` is 1.5"),
        ({"max_restarts": 1, "within_s": 0}, "`within_s` is 0"),
        ({"max_restarts": 1, "within_s": math.inf}, "`within_s` is inf"),
        ({"within_s": 1.0}, "`within_s` is the window of `max_restarts`"),
        ({"max_mail": 0}, "`max_mail` is 0"),
    ],
)
def test_a_child_spec_that_could_not_be_started_is_refused(options, problem):
    with pytest.raises(ChildSpecInvalid, match=problem):
        ChildSpec(**{"id": "one", "start": Adder} | options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "a/b"}, "a part of a path"),
        ({"strategy": "all"}, "`strategy` is 'all'; take one of 'one_for_one', 'one_for_all', 'rest_for_one'"),
        ({"max_restarts": -1}, "`max_restarts` is -1"),
        ({"within_s": -1}, "`within_s` is -1"),
        ({"auto_shutdown": "always"}, "`auto_shutdown` is 'always'"),
        ({"children": [7]}, "7 is no child"),
        ({"children": [ChildSpec("a", Adder), ChildSpec("a", Adder)]}, "the id 'a' stands there twice"),
        ({"children": [ChildSpec("a", Adder), Supervisor("a")]}, "the id 'a' stands there twice"),
        ({"children": [ChildSpec("a", Adder, restart="transient", significant=True)]}, "`auto_shutdown` is 'never'"),
    ],
)
def test_a_supervisor_that_could_not_be_started_is_refused(options, problem):
    with pytest.raises(ChildSpecInvalid, match=problem):
        Supervisor(**{"name": "app"} | options)


def test_check_childspecs_gives_the_specs_and_starts_nothing():
    troupe = Troupe()
    spec, inner = troupe.child("a"), DynamicSupervisor("inner")
    assert check_childspecs([spec, inner]) == (spec, ChildSpec("inner", inner))
    assert troupe.log == []


def test_check_childspecs_refuses_what_does_not_fit_together():
    spec = ChildSpec("a", Adder, restart="temporary", significant=True)
    assert check_childspecs([spec], auto_shutdown="any_significant") == (spec,)
    with pytest.raises(ChildSpecInvalid) as caught:
        check_childspecs([spec])
    assert caught.value.child == "a"


@pytest.mark.parametrize("start", [Adder, Supervisor("inner")])
def test_a_worker_is_an_async_function(start):
    with pytest.raises(ChildSpecInvalid, match="give an async function, or use `ChildSpec`"):
        Worker("one", start)


async def plain() -> None: ...


async def wants(*, task_status: anyio.abc.TaskStatus[None]) -> None: ...


class Callable:
    """Both kinds of start as methods."""

    async def plain(self) -> None: ...

    async def wants(self, task_status: anyio.abc.TaskStatus[None]) -> None: ...

    async def __call__(self, *, task_status: anyio.abc.TaskStatus[None]) -> None: ...


@functools.wraps(wants)
async def wrapped(*args: object, **kwargs: object) -> None: ...


@pytest.mark.parametrize(
    ("start", "takes"),
    [
        (plain, False),
        (wants, True),
        (Callable().plain, False),
        (Callable().wants, True),
        (Callable(), True),
        (functools.partial(wants), True),
        (functools.partial(plain), False),
        (wrapped, True),
        (Adder, False),
        (dict, False),
        (lambda: Adder([]), False),
        (Supervisor("inner"), False),
    ],
)
def test_whether_a_start_takes_task_status_is_seen_from_its_parameters(start, takes):
    assert ChildSpec("one", start).takes_status is takes
