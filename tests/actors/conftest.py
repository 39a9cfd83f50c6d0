"""Lets the tests of this folder import `troupe`, the children that they put under supervisors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from troupe import Troupe, Witness


@pytest.fixture
def troupe() -> Troupe:
    return Troupe()


@pytest.fixture
def witness() -> Witness:
    return Witness()
