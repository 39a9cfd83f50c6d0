"""Runs a shell line in a process group of its own, and leaves nothing of it behind.

A worker thread waits for it, not the event loop: a child process takes real time, also where the clock is virtual. What
the line started ends with it: the group is told to, then killed, and what left the group for a session of its own is
found by a mark in its environment (on Linux).
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, final

import anyio
import anyio.to_thread
import msgspec

Stopped: TypeAlias = Literal["", "timeout", "cancelled", "failed"]

GRACE_S = 1.0
"""Seconds between telling processes to end and killing them."""
MARK = "SHOAL_CALL"
"""Variable by which what a line started is found again."""

_groups: set[int] = set()
"""The process groups of the lines that run now."""
_POLL_S = 0.02
_REAP_S = 5.0
_READ_BYTES = 64 * 1024
_ROUNDS = 20


@final
class Ended(msgspec.Struct, frozen=True, gc=False):
    """How a line ended.

    Args:
        code: Its exit code, below 0 for a signal; `None` where it was stopped or did not start.
        out: Standard output, the first bytes of it.
        err: Standard error, the first bytes of it.
        out_left: How many more bytes standard output had.
        err_left: How many more bytes standard error had.
        stopped: Why it did not end by itself; empty where it did.
        why: Of `failed`: why it did not start.
    """

    code: int | None
    out: bytes = b""
    err: bytes = b""
    out_left: int = 0
    err_left: int = 0
    stopped: Stopped = ""
    why: str = ""


def shell_path(folders: str) -> str:
    """Return the shell that runs lines: bash where there is one, else what every system has.

    Args:
        folders: Where programs are looked for, as `PATH` says it.
    """
    return shutil.which("bash", path=folders) or "/bin/sh"


async def run_line(
    line: str,
    *,
    folder: Path,
    environ: Mapping[str, str],
    mark: str,
    timeout_s: float,
    most_bytes: int,
    threads: anyio.CapacityLimiter,
) -> Ended:
    """Run *line* in a shell and return how it ended; nothing that it started is left, however that was.

    Args:
        line: The line.
        folder: The folder it runs in.
        environ: Its environment.
        mark: Tells what it starts from what others start; it ends in a character that it has nowhere else.
        timeout_s: Seconds that it may take.
        most_bytes: Most bytes that are kept of each stream; the rest is read and counted.
        threads: Limits the threads that wait for lines.
    """
    child = _Child(
        [shell_path(environ["PATH"]), "-c", "--", line],
        folder,
        {**environ, MARK: mark},
        mark,
        timeout_s,
        most_bytes,
    )

    async def stop_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            child.stop()

    ended: Ended | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_when_cancelled)
            # Not abandoned when cancelled: `stop` ends it, and then nothing is left of it.
            ended = await anyio.to_thread.run_sync(child.run, limiter=threads)
            tasks.cancel_scope.cancel()
    finally:
        child.close()
    assert ended is not None  # otherwise a cancel was on its way through here
    return ended


@final
class _Stream:
    """What comes of one stream: the first bytes, and how many more there were."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        self.descriptor = descriptor
        self.most_bytes = most_bytes
        self.kept = bytearray()
        self.left = 0

    def read(self) -> bool:
        """Read what is there; false at the end."""
        data = os.read(self.descriptor, _READ_BYTES)
        room = self.most_bytes - len(self.kept)
        self.kept += data[:room]
        self.left += max(0, len(data) - room)
        return bool(data)


@final
class _Child:
    """One line while it runs, in the thread that waits for it."""

    def __init__(
        self, args: list[str], folder: Path, environ: Mapping[str, str], mark: str, timeout_s: float, most_bytes: int
    ) -> None:
        self._args = args
        self._folder = folder
        self._environ = environ
        self._mark = mark
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._heard, self._told = os.pipe()
        self._stopped: Stopped = ""

    def stop(self) -> None:
        """Have the line end now; called from the event loop."""
        os.write(self._told, b"!")

    def close(self) -> None:
        os.close(self._heard)
        os.close(self._told)

    def run(self) -> Ended:
        try:
            process = subprocess.Popen(  # noqa: S603 - running what somebody else wrote is what this is for
                self._args,
                cwd=self._folder,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            reason = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else str(exc)
            return Ended(None, stopped="failed", why=reason)
        assert process.stdout is not None  # asked for above
        assert process.stderr is not None
        out = _Stream(process.stdout.fileno(), self._most_bytes)
        err = _Stream(process.stderr.fileno(), self._most_bytes)
        _groups.add(process.pid)
        try:
            with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
                selector.register(self._heard, selectors.EVENT_READ)
                selector.register(out.descriptor, selectors.EVENT_READ, out)
                selector.register(err.descriptor, selectors.EVENT_READ, err)
                self._wait(process, selector)
                _end_group(process, selector)
                hunt(self._mark)
                _read_rest(selector)
            code = _reaped(process)
        finally:
            _groups.discard(process.pid)
        kept = bytes(out.kept), bytes(err.kept)
        return Ended(None if self._stopped else code, *kept, out.left, err.left, self._stopped)

    def _wait(self, process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
        """Return once the shell has ended, or is to be stopped."""
        until = time.monotonic() + self._timeout_s
        while process.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                self._stopped = "timeout"
                return
            # Something in the background may hold the streams open, so their end does not tell.
            if _read(selector, min(left, _POLL_S))[1]:
                self._stopped = "cancelled"
                return


def _read(selector: selectors.BaseSelector, wait_s: float) -> tuple[bool, bool]:
    """Read once what the streams have, waiting for it up to *wait_s* seconds.

    Returns:
        Whether there was anything, and whether the line is to be stopped.
    """
    anything = stop = False
    for key, _ in selector.select(wait_s):
        if isinstance(key.data, _Stream) and key.data.read():
            anything = True
        else:
            selector.unregister(key.fileobj)
            stop = stop or not isinstance(key.data, _Stream)
    return anything, stop


def _end_group(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
    """Tell everything in the line's group to end, and kill what has not after a while."""
    until = time.monotonic() + GRACE_S
    asked = _signal_group(process.pid, signal.SIGTERM)
    while asked and time.monotonic() < until:
        process.poll()  # a shell that has ended counts as one of its group until somebody asks
        if not _signal_group(process.pid, 0) or not _lives(process.pid):
            return
        _read(selector, _POLL_S)
    _signal_group(process.pid, signal.SIGKILL)


def _read_rest(selector: selectors.BaseSelector) -> None:
    """Read what the dead have left in the streams; bounded, since somebody may have got away."""
    until = time.monotonic() + GRACE_S
    while _read(selector, 0.0)[0] and time.monotonic() < until:
        pass


def hunt(mark: str) -> None:
    """Kill everything whose mark begins with *mark*, until nothing is found any more; call it in a thread."""
    for _ in range(_ROUNDS):
        killed = [pid for pid in _processes() if _kill(pid, mark)]
        if not killed:
            return


def kill_lines() -> None:
    """Kill every line that runs now, at once: for a process that is about to leave without waiting for anything."""
    for group in tuple(_groups):
        _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; false where nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody in it is not ours to signal; on macOS also where only the dead are left
    return True


def _reaped(process: subprocess.Popen[bytes]) -> int | None:
    """Return how the shell ended; `None` where the system does not let go of it even though it was killed."""
    try:
        return process.wait(_REAP_S)
    except subprocess.TimeoutExpired:  # pragma: no cover - it hangs in the kernel
        return None


def _processes() -> Iterator[int]:
    if sys.platform != "linux":  # pragma: no cover - nothing says there what belongs to a line
        return
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names are all we need


def _lives(group: int) -> bool:
    """Say whether somebody of a process group is alive; the dead stay in it where nobody buries them."""
    if sys.platform != "linux":  # pragma: no cover - there somebody always does
        return True
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - no path of anybody's
                state, _, of_group = file.read().rpartition(b")")[2].split()[:3]
        except OSError:
            continue  # gone meanwhile
        if int(of_group) == group and state not in (b"Z", b"X"):
            return True
    return False


def _kill(pid: int, mark: str) -> bool:
    """Kill process *pid* if its mark begins with *mark*."""
    try:
        # By a descriptor, so that no other process gets in the way by taking its number.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - no path of anybody's
            found = f"\0{MARK}={mark}".encode() in b"\0" + file.read()
        if found:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return found
