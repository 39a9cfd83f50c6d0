"""How long it takes until `shoal` is there: importing it, and the first line of the command line.

    python benchmarks/startup.py [ROUNDS]

Each figure is that of the fastest of ROUNDS fresh processes (20 unless given), an empty Python's start included. The
targets hold for a quiet machine: 100 ms on top of an empty Python for the import, 250 ms for the help. The time on the
processor says what a busy machine hides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

ROUNDS = 20
CASES: dict[str, Sequence[str]] = {
    "an empty Python": ("-c", ""),
    "import shoal": ("-c", "import shoal"),
    "shoal --help": ("-m", "shoal", "--help"),
    "shoal run --help": ("-m", "shoal", "run", "--help"),
    "shoal ps": ("-m", "shoal", "ps", "--json"),
    "import shoal.runtime": ("-c", "import shoal.runtime"),
    "shoal.Swarm": ("-c", "import shoal; shoal.Swarm"),
}


def once(arguments: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that one process takes, by the clock and on the processor."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments!r} ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def slowest_imports(most: int = 8) -> list[str]:
    """Return the slowest imports of `shoal --help`, each without what it imports in turn."""
    command = [sys.executable, "-X", "importtime", "-m", "shoal", "--help"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in said.splitlines() if "|" in line]
    counted = [(int(row[0]), row[2].strip()) for row in rows if row[0].strip().isdigit()]
    return [f"{own / 1000:8.1f} ms  {module}" for own, module in sorted(counted, reverse=True)[:most]]


def main() -> None:
    """Print one line a case."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"best of {rounds}:   clock  processor")
    for name, arguments in CASES.items():
        clock, processor = zip(*(once(arguments) for _ in range(rounds)), strict=True)
        print(f"{min(clock) * 1000:15.0f} ms  {min(processor) * 1000:6.0f} ms  {name}")
    print("slowest imports of `shoal --help`:")
    print(*slowest_imports(), sep="\n")


if __name__ == "__main__":
    main()
