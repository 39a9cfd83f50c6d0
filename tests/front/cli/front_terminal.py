"""A command line on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _login(slave: int) -> None:
    """Take *slave* as the controlling terminal; its end hangs up, whatever whoever runs the tests ignores."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.login_tty(slave)


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, source: str, *arguments: object, columns: int = 120, lines: int = 30) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines)}
        command = [sys.executable, "-c", source, *map(str, arguments)]
        # Its controlling terminal, so that Ctrl-C there is a signal.
        self.process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=(slave,),
            preexec_fn=lambda: _login(slave),  # noqa: PLW1509 - no thread is at work
        )
        os.close(slave)
        self.raw = ""

    @property
    def shown(self) -> str:
        """Everything that was drawn so far, without its escape sequences."""
        return ESCAPES.sub("", self.raw)

    def read(self) -> bool:
        """Read what there is; false at the end."""
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            return False
        self.raw += data.decode()
        return bool(data)

    def wait_for(self, words: str, times: int = 1) -> None:
        """Read until *words* were shown so many *times*; what was typed is echoed whenever that may be."""
        until = time.monotonic() + 30
        while self.shown.count(words) < times:
            assert self.read(), self.shown
            assert time.monotonic() < until, self.shown

    def type(self, text: str) -> None:
        """Type *text*."""
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit status."""
        while self.read():
            pass
        return self.process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
