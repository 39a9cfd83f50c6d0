"""What every test shares: both event loops, virtual time, and a limit in real seconds."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What models cost is what ships here, unless a test says otherwise: what the list of `shoal[prices]` says may change.
sys.modules["genai_prices"] = None  # type: ignore[assignment] # as if it were not installed

pytest_plugins = ["shoal.testing.plugin"]

WALL_LIMIT_S = 20
BUSY_TIMES = 5
"""How often the limit is put off while the machine has more to do than it can."""

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("nightly", parent=settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def nightly() -> bool:
    """Say whether tests that can go on for long are to do so: `make nightly` sets that."""
    return os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@pytest.fixture(autouse=True)
def wall_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that takes too long in real time: the net below `fail_after`, which works on virtual time.

    Where more wants to run than there are processors, a test that waits its turn is not stuck: it gets more time.
    """
    marker = request.node.get_closest_marker("wall_limit")
    seconds = marker.args[0] if marker else WALL_LIMIT_S
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    more = [seconds] * BUSY_TIMES

    def give_up(_signum: int, _frame: object) -> None:
        if more and os.getloadavg()[0] > (os.cpu_count() or 1):
            signal.setitimer(signal.ITIMER_REAL, more.pop())
            return
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail(f"took longer than {seconds} s of real time", pytrace=True)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-prompts", action="store_true", help="rewrite the files under tests/prompts")


@pytest.fixture
def same_prompt(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a request with the file under `tests/prompts` that it is written to; `--update-prompts` rewrites it."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "prompts" / f"{name}.txt"
        if request.config.getoption("--update-prompts"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is not there; write it with `pytest --update-prompts`"
        assert text == path.read_text(encoding="utf-8")

    return check
