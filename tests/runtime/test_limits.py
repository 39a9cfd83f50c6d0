"""Limits and permissions that are none: refused where they are made."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ConfigInvalid
from shoal.runtime import Limits, Permissions


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_iterations": 0}, "the limit `max_iterations` is 0; give a whole number above 0"),
        ({"max_iterations": 2.5}, "is 2.5; give a whole number above 0"),
        ({"max_iterations": True}, "is True; give a whole number"),
        ({"request_timeout_s": -1}, "the limit `request_timeout_s` is -1; give a number above 0"),
        ({"request_timeout_s": None}, "is None; give a number above 0"),
        ({"asks": -1}, "the limit `asks` is -1; give a whole number 0 or more"),
        ({"idle_s": 0}, "is 0; give a number above 0, or `None` for never"),
    ],
)
def test_a_limit_that_is_none_is_refused(limits: dict[str, Any], said: str):
    with pytest.raises(ConfigInvalid, match=said):
        Limits(**limits)


def test_what_may_be_nothing_may_be():
    limits = Limits(asks=0, nudges=0, point_rounds=0, max_child_depth=0, idle_s=None, question_s=None)
    assert (limits.asks, limits.idle_s) == (0, None)


@pytest.mark.parametrize("where", ["launch", "user", "folder"])
def test_a_permission_that_is_none_is_refused(where: str):
    said: dict[str, Any] = {where: {"shell": "maybe"}}
    with pytest.raises(ConfigInvalid, match="the permission of `shell` is 'maybe'; give one of `allow`, `ask`, `deny`"):
        Permissions(**said)


def test_a_permission_that_is_none_is_refused_where_a_stronger_one_stands_for_the_same_tool():
    with pytest.raises(ConfigInvalid, match="the permission of `shell` is 'maybe'"):
        Permissions(user={"shell": "ask"}, folder={"shell": "maybe"})  # type: ignore[dict-item]


def test_a_permission_for_the_rest_is_one():
    with pytest.raises(ConfigInvalid, match="the permission of `launch_rest` is 'yes'"):
        Permissions(launch_rest="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigInvalid, match="the permission of `launch_rest` is ''"):
        Permissions(launch_rest="")  # type: ignore[arg-type]
    assert Permissions(launch_rest="allow").launch_rest == "allow"
