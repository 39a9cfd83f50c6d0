"""The names that `import shoal` gives, and what importing it does not do."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import shoal

PROBE = """
import os, sys

class Watched(dict):
    def __getitem__(self, name):
        raise AssertionError(f"read {name} from the environment")
    get = __contains__ = __iter__ = keys = items = __getitem__

before = set(sys.modules)
sys.addaudithook(lambda event, args: event.startswith("socket.") and sys.exit(f"{event} {args}"))
os.environ = Watched()
import shoal
dir(shoal)
print(*sorted(set(sys.modules) - before))
"""


def test_the_public_names_are_sorted_and_fewer_than_thirty():
    assert shoal.__all__ == sorted(shoal.__all__)
    assert len(shoal.__all__) < 30


@pytest.mark.parametrize("name", shoal.__all__)
def test_a_public_name_is_there_and_described(name: str):
    value = getattr(shoal, name)
    assert inspect.getdoc(value)
    assert value.__module__.split(".")[0] == "shoal"


def test_what_the_front_door_itself_makes_is_called_by_its_public_name():
    assert (shoal.Swarm.__module__, shoal.run.__module__) == ("shoal", "shoal")


@pytest.mark.parametrize("home", sorted(shoal._HOMES))
def test_a_public_name_is_the_one_of_its_room(home: str):
    room = import_module(home)
    assert all(getattr(shoal, name) is getattr(room, name) for name in shoal._HOMES[home])


def test_every_public_name_has_a_home():
    assert sorted(shoal._HOME_OF) == shoal.__all__


@pytest.mark.parametrize("room", shoal._ROOMS)
def test_a_room_is_an_attribute(room: str):
    assert getattr(shoal, room) is import_module(f"shoal.{room}")
    assert shoal.__getattr__(room) is getattr(shoal, room)  # as for one that nobody has loaded yet


def test_what_can_be_listed_can_be_had():
    assert all(hasattr(shoal, name) for name in dir(shoal))
    assert {*shoal.__all__, "__version__", "providers"} <= set(dir(shoal))


def test_the_version_is_the_installed_one():
    assert shoal.__version__.count(".") == 2


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Schwarm"):
        shoal.Schwarm  # noqa: B018 - the look-up is the test


def test_importing_reads_no_environment_opens_no_socket_and_loads_nothing_but_itself():
    probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert probe.stderr == ""
    loaded = {name.partition(".")[0] for name in probe.stdout.split()}
    assert loaded <= {"shoal"} | sys.stdlib_module_names
    assert "logging" not in loaded
    assert [name for name in probe.stdout.split() if name.startswith("shoal")] == ["shoal"]
