"""What is said about a blueprint that loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from bits import HEAD, MARK, marked_lines

from shoal.blueprints import Finding, check

QUIET = "mode = 'autonomous'\nmodel = 'p:m'\nmax_iterations = 3\n"


def lints_of(text: str, tmp_path: Path) -> list[Finding]:
    (tmp_path / "blueprint.toml").write_text(HEAD + text)
    blueprint, found = check(tmp_path)
    assert blueprint is not None, found
    return list(found)


WARNINGS = {
    "grows-only-orders": "[context.regions.r]\nkind = 'hashmap'\nvolatility = 'grows' # <-",
    "unstable-prefix": (
        "[context.regions.r]\nvolatility = 'stable' # <-\n"
        f"[stages.s]\n{QUIET}[stages.s.tool_routing]\ndefault_region = 'r'"
    ),
    "volatility-undeclared": "[context.regions]\nr = { budget = '2.1%' } # <-",
    "required-region-unenforceable": (
        f"[context.regions.r]\nkind = 'checklist'\nrequired = true # <-\n[stages.s]\n{QUIET}"
        "available_tools = ['context_write']"
    ),
    "stage-missing-mode": "[stages.s] # <-\nmodel = 'p:m'\nmax_iterations = 3",
    "stage-missing-model": "[stages.s] # <-\nmode = 'autonomous'\nmax_iterations = 3",
    "stage-missing-max-iterations": "[stages.s] # <-\nmode = 'autonomous'\nmodel = 'p:m'",
    "implicit-shell-policy": f"[stages.s]\n{QUIET}available_tools = ['bash'] # <-",
    "blocking-tool-in-autonomous-stage": f"[stages.s]\n{QUIET}available_tools = ['ask_user_text'] # <-",
    "routing-without-region-read": (
        f"[context.regions.r]\nvolatility = 'grows'\n[stages.s]\n{QUIET}available_tools = ['read_file']\n"
        "[stages.s.tool_routing] # <-\ndefault_region = 'r'"
    ),
    "output-shape-not-required": f"[stages.s]\n{QUIET}[stages.s.output] # <-\nformat = 'json'",
    "output-stage-owes-nothing": (
        "[stages.s]\nmode = 'output'\nmodel = 'p:m'\nmax_iterations = 3\nrequire_output = false # <-"
    ),
    "output-stage-can-modify": (
        "[stages.s]\nmode = 'output'\nmodel = 'p:m'\nmax_iterations = 3\navailable_tools = ['edit_file'] # <-"
    ),
    "fanout-no-escape": (
        "[stages.s]\nmode = 'fan_out'\nmodel = 'p:m'\nworker_query = 'x'\non_worker_failure = 'fail_all' # <-"
    ),
    "compact-summarizes-deliverable": (
        f"[context.regions.r]\nrequired = true\n[stages.s]\n{QUIET}available_tools = ['context_write']\n"
        f"[stages.s.transitions.t]\ntransform = 'compact' # <-\n[stages.t]\n{QUIET}"
    ),
    "stage-instructions-undeclared": f"[context.regions] # <-\nr = {{}}\n[stages.s]\n{QUIET}system_prompt = 'Work.'",
    "cycle-without-max-revisits": (
        f"[stages.a]\n{QUIET}[stages.a.transitions]\nb = {{}}\n[stages.b] # <-\n{QUIET}"
        f"[stages.b.transitions]\nc = {{}}\nend = {{}}\n[stages.c]\n{QUIET}"
        f"[stages.c.transitions]\nb = {{}}\n[stages.end]\n{QUIET}"
    ),
    "unreachable-stage": f"[stages.s]\n{QUIET}transitions = {{}}\n[stages.t] # <-\n{QUIET}",
    "dead-end-possible": (
        f"[stages.s] # <-\n{QUIET}[stages.s.transitions]\nt = {{}}\n[stages.t]\n{QUIET}max_revisits = 1\n"
        f"transitions = {{}}"
    ),
    "allow-complete-skips-output": (
        f"[stages.s]\n{QUIET}allow_complete = true # <-\n[stages.t]\nmode = 'output'\nmodel = 'p:m'\nmax_iterations = 1"
    ),
    "broad-read-path": "[read_paths]\nallow = ['~/'] # <-",
    "script-language": f"[stages.s]\n{QUIET}[stages.s.hooks]\non_error = 'h.js' # <-",
    "tool-twice": f"[stages.s]\n{QUIET}tool_permissions.shell = 'ask'\navailable_tools = ['shell',\n'bash'] # <-",
    "component-not-shipped": "[components]\nuse = ['date', 'mine'] # <-",
    "project-files-unshielded": "[components]\nuse = ['project_files'] # <-",
    "component-twice": "[components]\nuse = ['date', 'date'] # <-",
    "gate-without-effect": (
        f"[stages.s]\n{QUIET}[stages.s.transitions.t.gate] # <-\nmax_attempts = 1\n[stages.t]\n{QUIET}"
    ),
    "edge-never-taken": (
        f"[stages.s]\n{QUIET}[stages.s.transitions]\nt = {{ condition = 'error' }}\n"
        f"u = {{ condition = 'error' }} # <-\n[stages.t]\n{QUIET}[stages.u]\n{QUIET}"
    ),
    "interaction-points-missing": "[stages.s]\nmode = 'interactive_points' # <-\nmodel = 'p:m'\nmax_iterations = 1",
    "transform-of-others": "[[transforms]] # <-\nfrom_blueprint = 'a'\nto_blueprint = 'b'",
}

PROTECTED = {
    "a pinned region": "[context.regions.r]\nkind = 'pinned'|clear",
    "a region that may not be summarised": "[context.regions.r]\nsummarizable = false|compact",
    "a rejecting region, to summarise": "[context.regions.r]\nadmission = 'reject'|compact",
}

WITHOUT_EFFECT = {
    "a description for nobody": "[context.regions.r]\ndescribe_in_prompt = true # <-",
    "a message for nothing": "[context.regions.r]\nrequired_message = 'x' # <-",
    "no persistence without scratch": f"[stages.s]\n{QUIET}[stages.s.tool_routing]\npersist = false # <-",
    "a gate on an edge for errors": (
        f"[stages.s]\n{QUIET}[stages.s.transitions.t]\ncondition = 'error'\n"
        f"gate = {{ require_regions = ['task'] }} # <-\n"
        f"[stages.t]\n{QUIET}"
    ),
    "tools of a gate that asks for no change": (
        f"[stages.s]\n{QUIET}available_tools = ['shell']\ntool_permissions.shell = 'ask'\n"
        f"[stages.s.transitions.t.gate]\nrequire_regions = ['task']\ntools = ['bash'] # <-\n[stages.t]\n{QUIET}"
    ),
    "lists of another transform": (
        f"[stages.s]\n{QUIET}[stages.s.transitions.t]\ntransform_config = {{ clear = ['tool_results'] }} # <-\n"
        f"[stages.t]\n{QUIET}"
    ),
}

NOTES = {
    "bindings-end-shared-prefix": "[components]\nuse = ['bindings'] # <-",
    "command-seed": "[context.regions.r]\nseed = { command = 'ls' } # <-",
    "tool-seed": "[context.regions.r]\nseed = { tool = 'current_time' } # <-",
    "read-paths-declared": "[read_paths]\nallow = ['~/notes'] # <-",
    "safe-commands-declared": "[safe_commands] # <-\nshell = ['make']",
}


@pytest.mark.parametrize("id_", WARNINGS)
def test_it_warns_of_this_alone_on_its_line(id_: str, tmp_path: Path) -> None:
    text = WARNINGS[id_] if "[stages" in WARNINGS[id_] else f"{WARNINGS[id_]}\n[stages.s]\n{QUIET}"
    found = [(one.id, one.line) for one in lints_of(text, tmp_path) if one.severity == "warning"]
    assert found == [(id_, line) for line in marked_lines(text)]


@pytest.mark.parametrize("name", PROTECTED)
def test_a_transform_that_names_what_it_never_touches_warns(name: str, tmp_path: Path) -> None:
    region, key = PROTECTED[name].split("|")
    text = (
        f"{region}\n[stages.s]\n{QUIET}[stages.s.transitions.t]\ntransform = 'custom'\n"
        f"transform_config = {{ {key} = ['r'] }} # <-\n[stages.t]\n{QUIET}"
    )
    assert [(one.id, one.line) for one in lints_of(text, tmp_path)] == [("transform-protected", *marked_lines(text))]


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_key_that_does_nothing_warns(name: str, tmp_path: Path) -> None:
    text = WITHOUT_EFFECT[name] if "[stages" in WITHOUT_EFFECT[name] else f"{WITHOUT_EFFECT[name]}\n[stages.s]\n{QUIET}"
    found = [(one.id, one.severity, one.line) for one in lints_of(text, tmp_path)]
    assert found == [("key-without-effect", "warning", *marked_lines(text))]


@pytest.mark.parametrize("id_", NOTES)
def test_it_notes_this_alone_on_its_line(id_: str, tmp_path: Path) -> None:
    text = f"{NOTES[id_]}\n[stages.s]\n{QUIET}"
    assert [(one.id, one.severity, one.line) for one in lints_of(text, tmp_path)] == [
        (id_, "note", *marked_lines(text))
    ]


def test_a_refreshing_seed_says_that_it_runs_on_every_stage_entry(tmp_path: Path) -> None:
    seed = "{ glob = '*', refresh = 'each_stage' }"
    text = f"[context.regions.r]\nvolatility = 'grows'\nseed = {seed}\n[stages.s]\n{QUIET}"
    (note,) = lints_of(text, tmp_path)
    assert (note.id, note.severity) == ("refreshing-seed", "note")
    assert "on every stage entry" in note.message


@pytest.mark.parametrize(
    "text",
    [
        # a rejecting region may be cleared where a transform names it
        (
            "[context.regions.r]\nadmission = 'reject'\n[stages.s]\n{q}[stages.s.transitions.t]\ntransform = 'custom'\n"
            "transform_config = {{ clear = ['r'], carry = ['conversation'], compact = ['tool_results'] }}\n"
            "[stages.t]\n{q}"
        ),
        # a required region that a route fills, that a caller fills, that tracked files fill
        "[context.regions.r]\nrequired = true\nvolatility = 'grows'\n[stages.s]\n{q}tool_routing.default_region = 'r'",
        "[context.regions.r]\nrequired = true\nseed = {{ caller = 'x' }}\n[stages.s]\n{q}",
        (
            "[context]\nfile_tracking = {{}}\n"
            "regions.files = {{ kind = 'hashmap', required = true, volatility = 'rewritten' }}\n"
            "[stages.s]\n{q}"
        ),
        # a connector may have the tool that a permission, a requirement or a gate names
        (
            "[context.regions.r]\nrequired = true\n[stages.s]\n{q}available_connectors = ['github']\n"
            "required_tools = ['ask']\n"
            "tool_permissions.github__search = 'deny'\n"
            "[stages.s.transitions.t.gate]\nrequire_modifications = true\ntools = ['commit']\n[stages.t]\n{q}"
        ),
        # a loop with a limit in it, and a dead end with a way out
        (
            "[stages.a]\n{q}[stages.a.transitions]\nb = {{}}\nc = {{}}\n[stages.b]\n{q}max_revisits = 2\n"
            "[stages.b.transitions]\na = {{}}\n[stages.c]\n{q}"
        ),
        (
            "[stages.s]\n{q}[stages.s.transitions]\nt = {{}}\nu = {{ condition = 'dead_end' }}\n[stages.t]\n"
            "{q}max_revisits = 1\n"
            "transitions = {{}}\n[stages.u]\n{q}"
        ),
        # an edge to itself with a limit
        "[stages.s]\n{q}max_revisits = 2\n[stages.s.transitions]\ns = {{}}\nt = {{}}\n[stages.t]\n{q}",
        # a worker stage is reached by its fan-out, and what follows it too
        (
            "[stages.s]\nmode = 'fan_out'\nmodel = 'p:m'\nworker_stage = 'w'\nmerge_stage = 'm'\n"
            "[stages.m]\n{q}transitions = {{}}\n[stages.w]\n{q}allow_as_worker = true\n[stages.x]\n{q}"
        ),
        # a failing fan-out with a way out
        (
            "[stages.s]\nmode = 'fan_out'\nmodel = 'p:m'\nworker_query = 'x'\non_worker_failure = 'fail_all'\n"
            "transitions.t.condition = 'error'\n[stages.t]\n{q}"
        ),
        # instructions in a nudge need no region, and neither do those of a blueprint without regions
        "[context.regions.r]\n[stages.s]\n{q}system_prompt = 'Work.'\nprompt_as = 'nudge'",
        "[stages.s]\n{q}system_prompt = 'Work.'",
        # asking is expected where people are, or said to be
        "[stages.s]\nmode = 'interactive'\nmodel = 'p:m'\nmax_iterations = 1\navailable_tools = ['ask_user_text']",
        "[stages.s]\n{q}available_tools = ['ask_user_text']\nallow_blocking_tools = true",
        # a written volatility is a decision, the instructions have a place of their own, messages have no block
        "[context.regions.r]\nbudget = '50%'\nvolatility = 'rewritten'\n[stages.s]\n{q}",
        (
            "[context.regions]\nstage_instructions = {{ budget = '5%' }}\nconversation = {{ kind = 'sliding_window', "
            "budget = '50%' }}\n[stages.s]\n{q}"
        ),
        # one permission for the blueprint, one tool for reading what was routed
        "tool_permissions.shell = 'ask'\n[stages.s]\n{q}available_tools = ['shell']",
        (
            "[context.regions.r]\nvolatility = 'grows'\n[stages.s]\n"
            "{q}available_tools = ['read_file', 'context_read']\n"
            "tool_routing.default_region = 'r'"
        ),
        # a summary that the region does not take, or that the transform does not order
        (
            "[context.regions.r]\nrequired = true\nsummarizable = false\n[stages.s]\n"
            "{q}available_tools = ['context_write']\n"
            "transitions.t.transform = 'compact'\n[stages.t]\n{q}"
        ),
        (
            "[context.regions.r]\nrequired = true\nkind = 'hashmap'\n[stages.s]\n"
            "{q}available_tools = ['context_write']\n"
            "transitions.t.transform = 'compact'\n[stages.t]\n{q}"
        ),
    ],
)
def test_what_is_well_meant_is_not_warned_of(text: str, tmp_path: Path) -> None:
    assert [one for one in lints_of(text.format(q=QUIET), tmp_path) if one.severity == "warning"] == []


def test_a_custom_transform_that_summarises_a_required_region_warns(tmp_path: Path) -> None:
    text = (
        f"[context.regions.r]\nrequired = true\n[stages.s]\n{QUIET}available_tools = ['context_write']\n"
        "[stages.s.transitions.t]\ntransform = 'custom'\ntransform_config.compact = ['r']\n"
        f"[stages.t]\n{QUIET}"
    )
    assert [one.id for one in lints_of(text, tmp_path)] == ["compact-summarizes-deliverable"]


def test_the_shape_of_an_output_that_no_stage_owes_warns_for_the_blueprint(tmp_path: Path) -> None:
    assert [one.id for one in lints_of(f"agent.output.format = 'json'\n[stages.s]\n{QUIET}", tmp_path)] == [
        "output-shape-not-required"
    ]


def test_the_mark_is_in_each_case_that_needs_one() -> None:
    assert all(MARK in text for table in (WARNINGS, WITHOUT_EFFECT, NOTES) for text in table.values())
