"""The gates between a call and its effect: their order, what they say, and what they must not fall over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.blueprints import Blueprint, Permission, Stage
from shoal.runtime import BUILT_IN, Permissions, Tool
from shoal.runtime.tools import Verdict, compiled, judge

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "count": {"type": "integer", "minimum": 1}, "any": {}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool(schema: Mapping[str, Any] = SCHEMA, name: str = "look", permission: Permission = "allow") -> Tool:
    return Tool(name, "Look.", schema, None, permission)


def judged(arguments: str = '{"path": "a"}', name: str = "look", **permissions: Permission) -> Verdict:
    return judge({"look": tool(), "shell": tool(name="shell")}, name, arguments, permissions)


GIVEN = {"path": "a", "count": 2}


# --- order


def test_a_call_that_passes_has_its_arguments():
    verdict = judged('{"path": "a", "count": 2}')
    assert (verdict.gate, verdict.said, verdict.asks, dict(verdict.args)) == (
        None,
        "",
        False,
        {"path": "a", "count": 2},
    )


def test_a_tool_that_the_stage_does_not_offer_is_unavailable_whatever_else_is_wrong():
    verdict = judged("no json", name="write", write="deny")
    assert (verdict.tool, verdict.gate) == (None, "visibility")
    assert verdict.said == "[unavailable] this stage has no tool 'write'; it has `look`, `shell`"


def test_a_name_without_end_is_not_said_again_in_full():
    said = judge({}, "n" * 10_000, "", {}).said
    assert said == f"[unavailable] this stage has no tool '{'n' * 100}…'; it has no tool"


def test_a_stage_without_tools_says_so():
    assert judge({}, "look", "", {}).said == "[unavailable] this stage has no tool 'look'; it has no tool"


def test_arguments_are_checked_before_anybody_is_asked():
    verdict = judged("{}", look="ask")
    assert (verdict.gate, verdict.asks) == ("schema", False)
    assert judged("{}", look="deny").gate == "schema"


def test_a_call_that_is_denied_says_so():
    verdict = judged(look="deny")
    assert (verdict.gate, verdict.said) == ("permission", "[denied] `look` may not be called here")


def test_a_call_that_somebody_has_to_approve_is_not_stopped_yet():
    verdict = judged(look="ask")
    assert (verdict.gate, verdict.asks, verdict.said) == (None, True, "")


@pytest.mark.parametrize(("own", "asks"), [("allow", False), ("ask", True)])
def test_a_tool_that_nobody_speaks_of_has_its_own_permission(own: Permission, asks: bool):
    assert judge({"look": tool(permission=own)}, "look", '{"path": "a"}', {}).asks is asks


def test_an_alias_means_its_tool():
    verdict = judged(name="bash")
    assert verdict.tool is not None
    assert verdict.tool.name == "shell"


# --- arguments


@pytest.mark.parametrize(
    "arguments", ["{", "word", '{"path": NaN}', '{"any": -Infinity}', "{'path': 1}", "[" * 100_000]
)
def test_arguments_that_are_no_json_are_refused(arguments: str):
    verdict = judged(arguments)
    assert verdict.gate == "schema"
    assert verdict.said.startswith("[error] the arguments of `look` are not JSON: ")


@pytest.mark.parametrize("arguments", ["[]", "1", "null", '"text"', "true"])
def test_arguments_that_are_no_object_are_refused(arguments: str):
    assert judged(arguments).said == "[error] the arguments of `look` must be a JSON object"


def test_no_arguments_are_an_empty_object():
    assert judge({"look": tool({"type": "object"})}, "look", "", {}).args == {}


def test_each_violation_is_listed_with_its_place():
    said = judged('{"count": 0, "extra": 1}').said
    assert said.splitlines()[0] == "[error] the arguments of `look` break its schema:"
    assert sorted(said.splitlines()[1:]) == [
        '- "path" is a required property',
        "- Additional properties are not allowed ('extra' was unexpected)",
        "- count: 0 is less than the minimum of 1",
    ]


def test_a_violation_deep_inside_says_the_way_to_it():
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": SCHEMA}}}
    verdict = judge({"look": tool(schema)}, "look", '{"items": [{"path": "a"}, {"path": 7}]}', {})
    assert '- items/1/path: 7 is not of type "string"' in verdict.said


def test_many_violations_are_cut_short():
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    verdict = judge({"look": tool(schema)}, "look", json.dumps({"items": list(range(1000))}), {})
    assert len(verdict.said.splitlines()) == 11


def test_a_violation_does_not_repeat_a_whole_file():
    assert len(judged(json.dumps({"path": ["x" * 100_000]})).said) < 500


def test_what_is_wrong_with_arguments_that_are_nested_too_deeply_is_not_quoted():
    deep = '{"a":' * 600 + "1" + "}" * 600
    assert judged(f'{{"path": "a", "extra": {deep}}}').said.endswith("\n- it is nested too deeply to say more")
    assert judged(f'{{"path": "a", "any": {deep}}}').gate is None


def test_half_a_character_becomes_the_mark_of_one():
    verdict = judged(r'{"path": "a\ud800b", "any": [{"\udcff": "\ud83d\ude00"}, 1]}')
    assert dict(verdict.args) == {"path": "a\ufffdb", "any": [{"\ufffd": "😀"}, 1]}


def test_a_huge_number_is_a_number():
    assert judged(f'{{"path": "a", "count": {10**40}}}').gate is None


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(value=VALUES, extra=st.booleans())
def test_no_arguments_can_break_the_gates(value: object, extra: bool):
    verdict = judged(json.dumps({"path": "a", "any": value} if extra else value))
    assert verdict.gate in (None, "schema")
    assert (verdict.gate is None) == (verdict.said == "")
    json.dumps(dict(verdict.args)).encode()


@given(arguments=st.text())
def test_no_text_can_break_the_gates(arguments: str):
    assert judged(arguments).gate in (None, "schema")


# --- schemas


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"properties": {"path": {"pattern": "("}}},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$schema": "https://example.com/meta.json"},
        {"$id": "https://example.com/a", "$ref": "b.json"},
    ],
)
def test_a_schema_that_cannot_be_compiled_is_not_checked(schema: dict[str, Any]):
    made = tool(schema)
    validator, why = compiled(made.spec.schema)
    assert (validator, bool(why), "\n" in why) == (None, True, False)
    assert judge({"look": made}, "look", '{"anything": 1}', {}).gate is None


def test_a_reference_to_elsewhere_is_never_followed(tmp_path: Any):
    (tmp_path / "schema.json").write_text('{"type": "object", "required": ["secret"]}')
    made = tool({"$ref": (tmp_path / "schema.json").as_uri()})
    assert "secret" not in judge({"look": made}, "look", "{}", {}).said
    assert "may not refer to" in compiled(made.spec.schema)[1]


def test_a_reference_inside_is_followed():
    schema = {"$defs": {"word": {"type": "string"}}, "properties": {"path": {"$ref": "#/$defs/word"}}}
    assert judge({"look": tool(schema)}, "look", '{"path": 1}', {}).gate == "schema"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_schema_of_every_built_in_tool_can_be_compiled(name: str):
    assert compiled(BUILT_IN[name].spec.schema)[1] == ""
    assert BUILT_IN[name].schema["additionalProperties"] is False


# --- permissions


def permission(
    own: Permission,
    *,
    launch: Permission | None = None,
    user: Permission | None = None,
    agent: Permission | None = None,
    stage: Permission | None = None,
    name: str = "shell",
) -> Permission:
    """Return what `shell` may do where each of them says this of it, under *name*."""

    def rules(said: Permission | None) -> Mapping[str, Permission]:
        return {} if said is None else {name: said}

    step = Stage("work", tool_permissions=rules(stage))
    blueprint = Blueprint("b", (step,), tool_permissions=rules(agent))
    return Permissions(rules(launch), rules(user)).of(tool(name="shell", permission=own), step, blueprint)


@pytest.mark.parametrize("own", ["allow", "ask", "deny"])
def test_where_nobody_speaks_the_tools_own_permission_holds(own: Permission):
    assert permission(own) == own


@pytest.mark.parametrize(
    ("own", "said", "settled"),
    [
        ("ask", {"user": "allow"}, "allow"),
        ("allow", {"user": "ask"}, "ask"),
        ("allow", {"agent": "ask"}, "ask"),
        ("allow", {"stage": "deny"}, "deny"),
        ("ask", {"agent": "allow"}, "ask"),  # a blueprint may only tighten
        ("ask", {"stage": "allow"}, "ask"),
        ("ask", {"user": "allow", "agent": "ask"}, "ask"),
        ("ask", {"user": "allow", "stage": "allow", "agent": "ask"}, "allow"),  # the stage is nearer
        ("ask", {"user": "deny", "stage": "allow"}, "deny"),
        ("ask", {"launch": "allow"}, "allow"),
        ("allow", {"launch": "ask"}, "ask"),
        ("allow", {"launch": "deny"}, "deny"),
        ("ask", {"launch": "allow", "stage": "ask", "user": "ask"}, "allow"),
        ("ask", {"launch": "allow", "user": "deny"}, "deny"),  # `deny` is final
        ("ask", {"launch": "allow", "agent": "deny"}, "deny"),
        ("deny", {"launch": "allow"}, "deny"),
    ],
)
def test_the_first_who_names_the_tool_settles_it(own: Permission, said: dict[str, Permission], settled: Permission):
    assert permission(own, **said) == settled  # type: ignore[arg-type]
    assert permission(own, **said, name="bash") == settled  # type: ignore[arg-type]


ANY = st.sampled_from([None, "allow", "ask", "deny"])


@given(own=st.sampled_from(["allow", "ask", "deny"]), launch=ANY, user=ANY, agent=ANY, stage=ANY)
def test_a_blueprint_never_loosens_and_a_deny_is_never_lifted(
    own: Permission,
    launch: Permission | None,
    user: Permission | None,
    agent: Permission | None,
    stage: Permission | None,
):
    strict = ["allow", "ask", "deny"]
    without = permission(own, launch=launch, user=user)
    settled = permission(own, launch=launch, user=user, agent=agent, stage=stage)
    assert strict.index(settled) >= strict.index(without) or (launch is not None and settled == launch)
    assert "deny" not in ((user or own), (stage or agent or "allow")) or settled == "deny"


def test_a_rule_for_another_tool_says_nothing():
    step = Stage("work", tool_permissions={"other": "deny"})
    assert Permissions().of(tool(), step, Blueprint("b", (step,))) == "allow"


@pytest.mark.parametrize(
    ("own", "launched", "expected"),
    [("ask", {}, "allow"), ("ask", {"shell": "ask"}, "ask"), ("ask", {"other": "deny"}, "allow"), ("deny", {}, "deny")],
)
def test_what_is_given_to_all_tools_at_the_spawn_holds_for_those_that_are_not_named(
    own: Permission, launched: dict[str, Permission], expected: Permission
):
    step = Stage("s")
    permissions = Permissions(launched, launch_rest="allow")
    assert permissions.of(tool(name="shell", permission=own), step, Blueprint("b", (step,))) == expected


@pytest.mark.parametrize(
    ("own", "folder", "expected"),
    [("allow", "ask", "ask"), ("ask", "allow", "ask"), ("deny", "ask", "deny"), ("allow", "deny", "deny")],
)
def test_the_settings_of_a_working_directory_only_tighten(own: Permission, folder: Permission, expected: Permission):
    step = Stage("s")
    permissions = Permissions(user={"shell": own}, folder={"shell": folder})
    assert permissions.of(tool(name="shell", permission="allow"), step, Blueprint("b", (step,))) == expected
