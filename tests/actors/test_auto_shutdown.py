"""A child's own end may end its supervisor."""

from __future__ import annotations

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from troupe import DEADLOCK_S, Troupe

from shoal.actors import Backoff, ChildSpec, Supervisor, running
from shoal.errors import SupervisorStopped

pytestmark = pytest.mark.anyio


def tree_of(troupe: Troupe, names: str, auto_shutdown: str, restart: str = "temporary", **options) -> Supervisor:
    significant = [troupe.child(name, restart=restart, significant=True) for name in names]
    return Supervisor("app", auto_shutdown=auto_shutdown, children=[*significant, troupe.child("z")], **options)


@pytest.mark.parametrize(
    ("restart", "error"), [("transient", None), ("temporary", None), ("temporary", ValueError("x"))]
)
async def test_any_significant_ends_with_the_first_own_end_of_a_significant_child(troupe, restart, error):
    async with running(tree_of(troupe, "ab", "any_significant", restart)) as tree:
        troupe.end("a", error)
        assert (await tree.wait()).kind == "shutdown"
        with pytest.raises(SupervisorStopped):
            tree.ref("a")
    assert troupe.take_log() == "+a +b +z -a -z -b"


async def test_all_significant_ends_with_the_last_one_whoever_else_still_runs(troupe, witness):
    async with running(tree_of(troupe, "ab", "all_significant"), observer=witness) as tree:
        troupe.end("a")
        await witness.until("exited", "a")
        await wait_all_tasks_blocked()
        assert tree.status == "running"
        troupe.end("b")
        assert (await tree.wait()).kind == "shutdown"
    assert [event.kind for event in witness.events][-3:] == ["exited", "auto_shutdown", "stopped"]


async def test_the_own_end_of_an_insignificant_child_ends_nothing(troupe, witness):
    children = [troupe.child("a", restart="temporary"), troupe.child("b", restart="temporary", significant=True)]
    async with running(Supervisor("app", auto_shutdown="any_significant", children=children), observer=witness) as tree:
        troupe.end("a")
        await witness.until("exited", "a")
        await wait_all_tasks_blocked()
        assert tree.status == "running"


async def test_a_significant_child_that_is_restarted_ends_nothing(troupe, witness):
    async with running(tree_of(troupe, "a", "any_significant", "transient"), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("started", "a", times=2)
        assert tree.status == "running"


async def test_a_significant_child_between_two_tries_counts_as_running(troupe, witness):
    children = [
        troupe.child("a", restart="transient", significant=True, backoff=Backoff(initial=50)),
        troupe.child("b", restart="transient", significant=True),
    ]
    async with running(Supervisor("app", auto_shutdown="all_significant", children=children), observer=witness) as tree:
        troupe.crash("a")
        await witness.until("restarting", "a")
        troupe.end("b")
        await witness.until("exited", "b")
        await wait_all_tasks_blocked()
        assert tree.status == "running"
        await witness.until("started", "a", times=2)
        troupe.end("a")
        assert (await tree.wait()).kind == "shutdown"


async def test_trap_terminate_child_never_ends_the_supervisor(troupe):
    async with running(tree_of(troupe, "a", "any_significant")) as tree:
        await tree.terminate_child("a")
        await wait_all_tasks_blocked()
        assert tree.status == "running"


async def test_trap_being_stopped_because_of_a_sibling_never_ends_the_supervisor(troupe, witness):
    tree = tree_of(troupe, "a", "any_significant", strategy="one_for_all")
    async with running(tree, observer=witness):
        troupe.crash("z")
        await witness.until("started", "z", times=2)
        assert tree.status == "running"


async def test_a_significant_child_that_spent_its_own_budget_ends_the_supervisor(troupe):
    children = [troupe.child("a", restart="transient", significant=True, max_restarts=0)]
    async with running(Supervisor("app", auto_shutdown="any_significant", children=children)) as tree:
        troupe.crash("a")
        assert (await tree.wait()).kind == "shutdown"


async def test_the_end_goes_up_where_the_supervisor_is_significant_itself(troupe):
    inner = tree_of(troupe, "a", "any_significant")
    spec = ChildSpec("inner", inner, restart="transient", significant=True)
    async with running(Supervisor("app", auto_shutdown="any_significant", children=[spec])) as tree:
        troupe.end("a")
        with anyio.fail_after(DEADLOCK_S):
            assert (await tree.wait()).kind == "shutdown"


async def test_the_body_goes_on_when_the_tree_ended_by_itself(troupe):
    async with running(tree_of(troupe, "a", "any_significant")) as tree:
        troupe.end("a")
        await tree.wait()
        await anyio.sleep(1)
        troupe.log.append("body")
    assert troupe.take_log().endswith("body")
