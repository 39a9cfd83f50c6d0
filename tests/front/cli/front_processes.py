"""Command lines in processes of their own, whose provider takes its time or does not let go."""

from __future__ import annotations

import subprocess
import sys

# A command line whose offline provider takes its time, in a process of its own.
SLOW = """
import sys
import shoal.cli._resume, shoal.cli._run
from shoal.providers import offline
provider = offline(latency_s=float(sys.argv[1]))
shoal.cli._run.providers_from = shoal.cli._resume.providers_from = lambda: (provider,)
from shoal.cli import main
sys.exit(main(sys.argv[2:]))
"""
# One whose runs cannot be stopped: their provider does not answer, and does not let go.
STUBBORN = """
import sys, anyio
import shoal.cli._run
from shoal.providers import offline

class Stubborn:
    name, default_model, stands_in = "offline", "offline", True
    inner = offline()
    def __getattr__(self, name):
        return getattr(self.inner, name)
    async def stream(self, request):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(600)
        yield

shoal.cli._run.providers_from = lambda: (Stubborn(),)
from shoal.cli import main
sys.exit(main(sys.argv[1:]))
"""


def hosted(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a command line in a process of its own."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Return what *process* prints up to the line that holds *words*."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}, but {said!r} and {process.communicate()!r}")
