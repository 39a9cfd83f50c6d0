"""A block without indentation: a background task holds open what `async with` would hold. For notebooks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, final

import anyio


@final
class Held:
    """An async context manager that is open until `close`; make it with `Held.open`.

    A context manager has to be left by the task that entered it, and at a notebook's top level each cell is a task of
    its own. This is the one place that starts a task without a task group around it; `close` waits for its end.
    """

    def __init__(self, manager: AbstractAsyncContextManager[object, bool | None]) -> None:
        self._manager = manager
        self._moved = anyio.Event()
        self._closing = anyio.Event()
        self._over = anyio.Event()
        self._error: Exception | None = None
        self._task: object = None

    @classmethod
    async def open(cls, manager: AbstractAsyncContextManager[object, bool | None]) -> Held:
        """Enter *manager* in a background task and return once it is open; what entering raises is raised here."""
        held = cls(manager)
        held._task = _in_background(held._hold)
        try:
            await held._moved.wait()
        finally:
            if not held._moved.is_set():
                held._closing.set()  # whoever opened it was cancelled: nobody will close it
        if held._over.is_set():
            held._raise()
        return held

    async def close(self) -> None:
        """Leave the block and return once it is left; what leaving raises is raised here."""
        self._closing.set()
        await self._over.wait()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    async def _hold(self) -> None:
        try:
            async with self._manager:
                self._moved.set()
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - raised by whoever opens or closes it
            self._error = error
        finally:
            self._moved.set()
            self._over.set()


def _in_background(function: Callable[[], Awaitable[Any]]) -> object:
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return trio.lowlevel.spawn_system_task(function)
    # The handle is kept by whoever calls: a loop alone would let the task be collected.
    return asyncio.get_running_loop().create_task(_awaited(function))


async def _awaited(function: Callable[[], Awaitable[Any]]) -> None:
    await function()
