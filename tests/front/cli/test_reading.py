"""The commands that read a journal, of this process's runs and of earlier ones'."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from front_shell import BLUEPRINT, Serve, Shell, newest

from shoal.runtime import SqliteReader
from shoal.runtime.journal import host_name
from shoal.testing import ScriptedProvider, call

READERS = ("tree", "events", "stages", "context", "result", "resume")


@pytest.fixture
def digested(shell: Shell, pages: Path) -> str:
    """The id of a digest that is over."""
    return shell("run", "digest", "--task", "What is in here?", "--workdir", pages, "--json").json["run_id"]


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[str], None]:
    """Change the journal behind everybody's back."""

    def edit(sql: str) -> None:
        with closing(sqlite3.connect(tmp_path / "state" / "shoal" / "runs.db")) as db, db:
            db.execute(sql)

    return edit


@pytest.fixture
def readings(tmp_path: Path):
    """The events of a run."""

    def of(run_id: str) -> list[Any]:
        with closing(SqliteReader(tmp_path / "state" / "shoal" / "runs.db")) as reader:
            return list(reader.read(run_id))

    return of


# --- ps


def test_nothing_has_run_yet(shell: Shell):
    assert shell("ps").out.startswith("Nothing has run yet")
    assert shell("ps", "--json").json == []


def test_runs_are_listed_with_where_they_stand(shell: Shell, digested: str):
    assert newest(shell) | {"spawned_at": "", "ended_at": "", "events": 0} == {
        "run_id": digested,
        "name": "digest",
        "title": "What is in here",
        "status": "complete",
        "stage": "merge",
        "parent": None,
        "root": digested,
        "runs_below": 3,
        "questions": 0,
        "events": 0,
        "spawned_at": "",
        "ended_at": "",
        "host": None,
    }
    assert f"{digested}  digest  complete  merge" in shell("ps").out


def test_children_are_listed_when_asked_for(shell: Shell, digested: str):
    assert [row["name"] for row in shell("ps", "--all", "--json").json] == ["digest", "reader", "reader", "reader"]


def test_only_the_newest_are_listed(shell: Shell, answers: Path):
    for _ in range(3):
        shell("run", answers)
    assert len(shell("ps", "--last", "2", "--json").json) == 2


def test_a_run_whose_process_is_gone_is_interrupted(shell: Shell, digested: str, edited: Callable[[str], None]):
    edited("UPDATE runs SET status = 'running', ended_at = NULL, host = 'nobody:1:0'")
    assert newest(shell)["status"] == "interrupted"


def test_a_run_that_a_process_hosts_is_running(shell: Shell, digested: str, edited: Callable[[str], None]):
    edited(f"UPDATE runs SET status = 'running', ended_at = NULL, host = '{(host := host_name())}'")
    edited(f"INSERT INTO hosts VALUES ('{host}', {host.split(':')[1]}, 9e12)")
    row = newest(shell)
    assert (row["status"], row["host"].startswith("process ")) == ("running", True)


# --- tree


def test_the_tree_shows_who_spawned_whom(shell: Shell, digested: str):
    lines = shell("tree").out.splitlines()
    assert lines[0].startswith("digest  complete  ")
    assert [line.split()[2] for line in lines[1:]] == ["harbour.md", "more/crane.md", "tide.md"]
    assert all(line.split()[-1].count("-") == 4 for line in lines)


def test_the_tree_of_a_child_is_that_of_its_root(shell: Shell, digested: str):
    child = shell("tree", "--json").json["children"][0]["run_id"]
    assert shell("tree", child, "--json").json == shell("tree", digested, "--json").json


def test_a_large_tree_is_cut_and_counted(shell: Shell, tmp_path: Path):
    (tmp_path / "many").mkdir()
    for number in range(40):
        (tmp_path / "many" / f"{number:02}.md").write_text("One sentence stands here.")
    shell("run", "digest", "--task", "Many", "--workdir", tmp_path / "many")
    assert "… 11 more; of all 41 runs: 41 complete" in shell("tree").out
    assert shell("tree", "--all").out.count("\n") == 41


# --- events


def test_events_are_one_a_line_with_names_for_their_fields(shell: Shell, digested: str):
    lines = [json.loads(line) for line in shell("events", digested, "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert set(lines[0]) == {"run_id", "seq", "at", "kind", "payload"}
    assert lines[0]["payload"]["task"] == "What is in here?"


def test_events_can_be_picked(shell: Shell, digested: str):
    said = shell("events", digested, "--kind", "StageEntered", "--after", "3").out
    assert [line.split()[2] for line in said.splitlines()] == ["StageEntered", "StageEntered"]
    assert "stage=merge" in said


# --- stages


def test_stages_have_their_regions_in_json(shell: Shell, digested: str):
    stages = shell("stages", digested, "--json").json
    assert [stage["stage"] for stage in stages] == ["survey", "split", "merge"]
    merge = {row["region"]: row for row in stages[2]["regions"]}
    assert merge["findings"]["usage"]["uncached"] > 0
    assert set(merge["findings"]) >= {"usage", "cost_usd", "high_water_tokens", "cache_hit_ratio", "calls"}


def test_the_stages_add_up_to_the_runs_usage(shell: Shell, digested: str):
    stages = shell("stages", digested, "--json").json
    total = shell("result", digested, "--json").json["usage"]
    for bucket, count in total.items():
        assert sum(stage["usage"][bucket] for stage in stages) == count


def test_stages_are_shown_with_their_regions_where_asked(shell: Shell, digested: str):
    assert "  findings" not in shell("stages", digested).out
    assert "  findings" in shell("stages", digested, "--regions").out


def test_regions_are_shown_with_their_budget(shell: Shell, digested: str):
    merge = {row["region"]: row for row in shell("stages", digested, "--json").json[2]["regions"]}
    assert merge["findings"]["budget_tokens"] >= merge["findings"]["high_water_tokens"] > 0
    assert merge["overhead"]["budget_tokens"] is None


def test_stages_are_csv_that_adds_up_to_what_json_says(shell: Shell, digested: str):
    rows = list(csv.DictReader(io.StringIO(shell("stages", digested, "--csv").out)))
    stages = shell("stages", digested, "--json").json
    assert [row["stage"] for row in rows if row["stage"] and not row["region"]] == ["survey", "split", "merge"]
    for bucket in ("uncached", "cache_read", "cache_write", "output"):
        billed = sum(int(row[bucket]) for row in rows if row["region"])
        assert billed == sum(stage["usage"][bucket] for stage in stages) == int(rows[0][bucket])


def test_transitions_are_shown_instead_where_asked(shell: Shell, digested: str):
    plain = shell("stages", digested, "--transitions", "--json").json
    assert [(move["from"], move["to"]) for move in plain] == [("survey", "split"), ("split", "merge"), ("merge", None)]
    shown = shell("stages", digested, "--transitions").out
    assert "survey → split" in shown
    assert "merge → the end" in shown
    assert "  findings" in shell("stages", digested, "--transitions", "--regions").out
    rows = list(csv.DictReader(io.StringIO(shell("stages", digested, "--transitions", "--csv").out)))
    assert [row["to"] for row in rows if not row["region"]] == ["split", "merge", ""]


def test_a_run_that_changed_no_stage_says_so(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider())
    shell("run", answers)
    assert shell("stages", newest(shell)["run_id"], "--transitions").out == "It changed no stage.\n"


def test_two_forms_at_once_are_refused(shell: Shell, digested: str):
    said = shell("stages", digested, "--csv", "--json")
    assert (said.status, "`--csv` and `--json` exclude each other" in said.err) == (2, True)


def test_stages_of_the_whole_tree_hold_the_readers(shell: Shell, digested: str):
    assert [stage["stage"] for stage in shell("stages", digested, "--tree", "--json").json][-1] == "read"


# --- context


def test_the_prompt_of_each_request_is_shown_as_it_was_sent(shell: Shell, digested: str, readings: Any):
    asked = [event for event in readings(digested) if event.kind == "InferenceStarted"]
    stage_requests = [event for event in asked if event.payload.purpose == "stage"]
    assert len(stage_requests) > 5
    for event in stage_requests:
        shown = shell("context", digested, "--at", str(event.seq), "--json").json
        assert shown["prompt_digest"] == event.payload.prompt_digest


def test_the_context_names_its_parts_and_regions(shell: Shell, digested: str):
    shown = shell("context", digested, "--json").json
    assert shown["stage"] == "merge"
    assert {part["owner"] for part in shown["parts"]} >= {"tools", "task", "findings", "conversation"}
    assert {"region": "findings", "kind": "temporary"}.items() <= shown["regions"][2].items()
    assert shown["tools"][0]["name"] == "submit_output"


def test_the_context_says_how_its_tokens_were_counted(shell: Shell, digested: str):
    shown = shell("context", digested, "--json").json
    assert shown["counted"]["how"] == "estimate"
    assert shown["counted"]["measurements"] > 0
    assert f"about {shown['approx_tokens']} of " in shell("context", digested).out
    assert "tokens (estimate, corrected by " in shell("context", digested).out


def test_the_context_of_a_run_that_was_never_billed_is_an_estimate(shell: Shell, digested: str, readings: Any):
    first = next(event for event in readings(digested) if event.kind == "InferenceStarted")
    assert "(estimate, not measured yet)" in shell("context", digested, "--at", str(first.seq)).out


def test_the_context_can_be_read(shell: Shell, digested: str):
    said = shell("context", digested).out
    assert "[system] task" in said
    assert "What is in here?" in said
    assert "[assistant] conversation" in said
    assert "calls submit_output" in said


def test_what_stands_behind_the_conversation_is_shown_last(shell: Shell):
    Path("made.toml").write_text(
        BLUEPRINT.replace(
            'seed = { caller = "house_rules" }, volatility = "stable"',
            'seed = { caller = "house_rules" }, volatility = "rewritten", placement = "tail"',
        )
    )
    run_id = shell("run", "./made.toml", "--house-rules", "no shouting", "--json").json["run_id"]
    assert shell("context", run_id).out.rstrip().endswith("[tail]\n## house_rules\nno shouting")
    assert "no shouting" in shell("context", run_id, "--json").json["tail"]


def test_the_context_explains_itself(shell: Shell, digested: str):
    said = shell("context", digested, "--explain").out
    assert "block        owner               tokens  offset  cacheable  marker  why" in said
    assert "cache markers: none" in said
    assert "declared `stable`: written once" in said
    assert "sliding_window" in said


@pytest.fixture
def claude(shell: Shell, serve: Serve) -> str:
    """The id of a run that a model with markers served."""
    submit = call("submit_output", content="an answer")
    serve(ScriptedProvider(submit, "done", name="anthropic", purposes={"titling": "A title"}))
    Path("roomy.toml").write_text(BLUEPRINT.replace("max_tokens = 500", "max_tokens = 20_000"))
    model = "anthropic:claude-opus-4-8"
    return shell("run", "./roomy.toml", "--brief", "b" * 40_000, "--model", model, "--json").json["run_id"]


def test_the_context_says_where_cache_markers_go(shell: Shell, claude: str):
    shown = shell("context", claude, "--json").json
    assert shown["breakpoints"][-1]["section"] == "messages"
    assert "5m" in {part["breakpoint"] for part in shown["parts"]}
    assert "cache markers: behind " in shell("context", claude, "--explain").out


def test_where_markers_go_follows_from_the_requests_before(shell: Shell, claude: str, readings: Any):
    asked = [e for e in readings(claude) if e.kind == "InferenceStarted" and e.payload.purpose == "stage"]
    first, second = (shell("context", claude, "--at", str(event.seq), "--json").json for event in asked)
    assert len(first["breakpoints"]) <= len(second["breakpoints"])


@pytest.mark.parametrize(("at", "expected"), [("999", "has no event 999"), ("1", "had entered no stage by event 1")])
def test_a_moment_that_has_no_context_is_refused(shell: Shell, digested: str, at: str, expected: str):
    said = shell("context", digested, "--at", at)
    assert (said.status, said.out) == (2, "")
    assert expected in said.err


# --- result


def test_the_result_is_what_was_submitted(shell: Shell, digested: str):
    said = shell("result", digested)
    report = Path("shoal-output", digested, "report.md").read_text("utf-8")
    assert (said.status, said.out.rstrip(), said.err) == (0, report.rstrip(), "")


def test_the_result_is_the_object_that_the_run_printed(shell: Shell, pages: Path):
    first = shell("run", "digest", "--task", "What is in here?", "--workdir", pages, "--json")
    assert shell("result", first.json["run_id"], "--json").json == first.json


def test_the_result_of_a_failed_run_fails(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider())
    shell("run", answers)
    said = shell("result", newest(shell)["run_id"])
    assert said.status == 1
    assert "ended 'error': it crashed 2 times" in said.err


def test_a_run_that_is_not_over_has_no_result(shell: Shell, digested: str, edited: Callable[[str], None]):
    edited("DELETE FROM events WHERE kind = 7")
    edited("UPDATE runs SET status = 'running', ended_at = NULL, host = NULL")
    said = shell("result", digested, "--json")
    assert (said.status, said.json["status"], said.json["output"]) == (3, "interrupted", None)
    assert f"go on with `shoal resume {digested}`" in said.err


# --- trace


def test_a_trace_is_exported_in_each_format(shell: Shell, digested: str):
    otlp = shell("trace", "export", digested).json
    jaeger = shell("trace", "export", digested, "--format", "jaeger").json
    spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len(spans) == len(jaeger["data"][0]["spans"]) > 20
    assert "invoke_agent digest" in shell("trace", "export", digested, "--format", "text").out


def test_a_trace_is_written_to_a_file(shell: Shell, digested: str):
    said = shell("trace", "export", digested, "--output", "trace.json")
    assert (said.status, said.out) == (0, "")
    assert Path("trace.json").read_bytes() == Path("shoal-output", digested, "trace.json").read_bytes()


def test_a_trace_that_cannot_be_written_is_told_of(shell: Shell, digested: str):
    said = shell("trace", "export", digested, "--output", "no/such/folder.json")
    assert said.status == 2
    assert "cannot be written: No such file or directory" in said.err


# --- library


def test_the_library_is_listed(shell: Shell):
    listed = shell("library", "--json").json
    assert [(row["name"], row["stages"]) for row in listed if row["name"] == "digest"] == [
        ("digest", ["survey", "split", "merge"])
    ]
    assert "digest" in shell("library").out


# --- runs that are not there


@pytest.mark.parametrize("command", READERS)
def test_a_run_that_is_not_there_is_named(shell: Shell, digested: str, command: str):
    said = shell(command, "no-such-run")
    assert (said.status, said.out) == (2, "")
    assert "this journal has no run 'no-such-run'" in said.err


@pytest.mark.parametrize("command", READERS)
def test_a_run_is_looked_for_before_anything_ran(shell: Shell, command: str):
    said = shell(command, "no-such-run")
    assert (said.status, said.out) == (2, "")
    assert "`shoal run` makes the first" in said.err


def test_an_id_may_be_shortened_until_it_is_ambiguous(shell: Shell, digested: str):
    assert shell("result", digested[:24]).status == 0
    said = shell("result", digested[:2])
    assert said.status == 2
    assert "could be 4 runs" in said.err


def test_a_journal_that_is_not_there_is_named(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = shell("ps", "--journal", tmp_path / "other.db")
    assert (said.status, said.out) == (2, "")
    assert "there is no journal at" in said.err
    monkeypatch.setenv("SHOAL_JOURNAL", str(tmp_path / "other.db"))
    assert shell("ps").status == 2


def test_a_file_that_is_no_journal_is_told_of(shell: Shell):
    Path("notes.db").write_text("these are notes, and they are long enough to be looked at as a database file")
    said = shell("ps", "--journal", "notes.db")
    assert said.status == 1
    assert "journal" in said.err
    assert "Traceback" not in said.err
