"""Whoever is killed, and however often: a tree does what OTP's rules say, and a fault in them would be noticed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import faults
import pytest
from simulation import Difference, simulate

pytestmark = pytest.mark.anyio

KILLS = 1_000
"""Children that are killed in the quick setting; ten times as many in the nightly one."""
FAULT_KILLS = 1_500
"""Within so many kills each fault has to show."""


@pytest.mark.wall_limit(300)
async def test_whoever_is_killed_a_tree_does_what_the_rules_say(nightly: bool):
    assert await simulate(0, 10 * KILLS if nightly else KILLS) > KILLS // 20


def test_the_model_shares_nothing_with_what_it_judges():
    tree = ast.parse((Path(__file__).parent / "otp_model.py").read_text("utf-8"))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert named
    assert named <= sys.stdlib_module_names


@pytest.mark.parametrize(
    "fault",
    [fault for found in faults.MARKED.values() for fault in found] + list(faults.OTHERS),
    ids=lambda fault: fault.__name__,
)
async def test_a_fault_in_the_rules_is_noticed(fault: faults.Fault, monkeypatch: pytest.MonkeyPatch):
    fault(monkeypatch)
    with pytest.raises(Difference):
        await simulate(0, FAULT_KILLS)
