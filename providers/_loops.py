"""Which event loop runs here: what waited in one, and what its clock said, means nothing in another."""

from __future__ import annotations

from typing import final

from anyio.lowlevel import RunVar

_running: RunVar[object] = RunVar("shoal.providers.loop")


@final
class LoopWatch:
    """Notices when what it belongs to is used in another event loop than before."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: object | None = None

    def __repr__(self) -> str:
        return f"<LoopWatch, {'unused' if self._loop is None else 'used'}>"

    @property
    def here(self) -> bool:
        """The event loop of the last `moved` runs here."""
        return self._loop is not None and self._loop is _loop()

    def moved(self) -> bool:
        """Say whether another event loop runs here than at the last call; true at the first, false outside of any."""
        here = _loop()
        if here is None or here is self._loop:
            return False
        self._loop = here
        return True


def _loop() -> object | None:
    """Return what stands for the event loop that runs here; `None` where none does."""
    try:
        return _running.get()
    except LookupError:
        made = object()
        _running.set(made)
        return made
    except RuntimeError:
        return None
