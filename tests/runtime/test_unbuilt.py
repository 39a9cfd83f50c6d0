"""Keys that are read and not acted on: whoever uses one is told, instead of being half obeyed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from shoal.blueprints import Blueprint, Stage
from shoal.errors import NotBuiltYet
from shoal.runtime import _unbuilt
from shoal.runtime._unbuilt import refuse_unbuilt

PLAIN = Blueprint("made", (Stage("work"),))


def test_a_blueprint_that_asks_for_nothing_special_is_not_refused():
    refuse_unbuilt(PLAIN)


def test_the_hint_about_the_shell_says_nothing_but_on_windows(monkeypatch: pytest.MonkeyPatch):
    made = replace(PLAIN, shell_hint=True, stages=(Stage("work", shell_hint=True),))
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="posix"))
    refuse_unbuilt(made)
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="nt"))
    with pytest.raises(NotBuiltYet, match="blueprint 'made' uses what this version does not do: ") as caught:
        refuse_unbuilt(made)
    assert tuple(caught.value.keys) == ("agent.shell_hint", "stages.work.shell_hint")


def test_what_is_switched_off_is_obeyed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="nt"))
    off = replace(PLAIN, batch_tool_hint=False, shell_hint=False)
    refuse_unbuilt(replace(off, stages=(Stage("work", batch_tool_hint=False, shell_hint=False),)))
