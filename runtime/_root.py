"""The supervisors of a swarm.

swarm            rest_for_one: a lost journal restarts all that stands on it
├─ journal
├─ services      one_for_one
├─ side          one_for_one: each lane, each under a supervisor that never fails upward
├─ runs          dynamic
└─ revival       brings back what of the runs went down with what they stand on
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, final

from shoal.actors import ChildSpec, SupervisionEvent, Supervisor, Worker
from shoal.runtime._control import serve_commands
from shoal.runtime._hall import Hall
from shoal.runtime._lanes import sheltered
from shoal.runtime._started import Trees

Serve: TypeAlias = Callable[[], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """The supervisors of one swarm, and the trees that its user starts in it.

    Args:
        tree: The root.
        side: What works beside the runs.
        started: The trees.
        hall: The hall that they stand around.
    """

    tree: Supervisor
    side: Supervisor
    started: Trees
    hall: Hall

    def observe(self, event: SupervisionEvent) -> None:
        """Take note of what a supervisor did, and show it to whoever watches its tree."""
        self.hall.supervised(event)
        self.started.observe(event)


def rooted(hall: Hall, services: Mapping[str, Serve], beside: Mapping[str, Serve]) -> Root:
    """Return the supervisors of the swarm that lives in *hall*; none of them runs yet.

    Args:
        hall: The hall.
        services: Workers that live as long as the swarm, by name.
        beside: Workers beside the lanes that may fail without hurting a run, by name.
    """
    started = Trees(hall.runs)
    lanes = [lane.tree for lane in hall.lanes.values()]
    workers = {**beside, "housekeeping": hall.home.keeper.serve}
    if hall.journal.shared is not None:
        workers["commands"] = partial(serve_commands, hall.home)
    servers = {**services, **{f"mcp {each.server.name}": each.serve for each in hall.connections}}
    sheltering = [sheltered(name, Worker(name, serve)) for name, serve in workers.items()]
    side = Supervisor("side", children=[*sheltering, *lanes])

    async def revive() -> None:
        """Bring back the runs and trees that went down because something below them was lost; none at the begin."""
        hall.home.keeper.bring_back()
        await started.bring_back()

    tree = Supervisor(
        "swarm",
        strategy="rest_for_one",
        children=(
            Worker("journal", hall.journal.serve),
            Supervisor("services", children=[Worker(name, serve) for name, serve in servers.items()]),
            side,
            hall.runs,
            # Transient, so that it is over at once, and begins again whenever what stands above it does.
            ChildSpec("revival", revive, restart="transient"),
        ),
    )
    return Root(tree, side, started, hall)
