"""Every run that a test of this folder lets end is folded again from its journal: events are the whole truth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.runtime._home import Home
from shoal.runtime._live import Live


@pytest.fixture(autouse=True)
def fold_equals_live(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare each run, whenever it waits or ends, with what its durable events add up to."""
    moved = Home.moved
    differing: list[tuple[object, object]] = []

    def checked(self: Home, live: Live) -> None:
        again = self.load(live.run_id)
        # A lane may have written more since the last commit. What differs is kept for the end of the test: raised here
        # it would crash the run, and its supervisor would cover it up.
        if again.seq == live.state.seq and again.dump() != live.state.dump():
            differing.append((again.dump(), live.state.dump()))
        moved(self, live)

    monkeypatch.setattr(Home, "moved", checked)
    yield
    for again, live in differing:
        assert again == live
