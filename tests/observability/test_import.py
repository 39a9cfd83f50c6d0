"""What importing does, and does not."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import shoal.observability
from shoal.observability import names

HEAVY = ("opentelemetry", "structlog", "requests", "google.protobuf")


def imported(code: str) -> list[str]:
    """Run *code* in a new interpreter and return which heavy packages it has imported."""
    ask = f"{code}\nimport sys, json; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_importing_imports_no_exporter_and_no_sdk():
    assert imported("import shoal.observability") == []


def test_looking_at_a_journal_imports_no_exporter_and_no_sdk():
    code = "from shoal.observability import *\nfrom shoal.runtime import MemoryJournal\nlogs; render_trace(())"
    assert imported(code) == []


def test_importing_sets_up_no_logging():
    check = "assert not logging.root.handlers and not logging.getLogger('shoal.observability').handlers"
    assert imported(f"import logging\nimport shoal.observability\n{check}") == []


def test_the_public_names_are_sorted_and_there():
    listed = shoal.observability.__all__
    assert list(listed) == sorted(listed)
    assert all(hasattr(shoal.observability, name) for name in listed)
    assert all(inspect.getdoc(getattr(shoal.observability, name)) for name in listed if name != "TraceFormat")


def test_no_two_attributes_have_one_name():
    constants = {name: value for name, value in vars(names).items() if name.isupper()}
    shared = {value for value in constants.values() if list(constants.values()).count(value) > 1}
    assert shared == {"shoal.region", "shoal.regions"}, "one is an attribute, the other an event"
