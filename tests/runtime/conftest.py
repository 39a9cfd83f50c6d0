"""Every run that a test of this folder lets end is folded again from its journal: events are the whole truth."""

from __future__ import annotations

import pytest

from shoal.runtime._hall import Hall
from shoal.runtime._live import Live


@pytest.fixture(autouse=True)
def fold_equals_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each run, whenever it waits or ends, with what its durable events add up to."""
    moved = Hall.moved

    def checked(self: Hall, live: Live) -> None:
        again = self.load(live.run_id)
        assert again.dump() == live.state.dump()
        moved(self, live)

    monkeypatch.setattr(Hall, "moved", checked)
