"""`shoal run`: the main job from the command line, and what bad input gets."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
from front_shell import Serve, Shell, newest

import shoal
from shoal.errors import ProviderSetup
from shoal.testing import ScriptedProvider, call


def digest(shell: Shell, folder: Path, *more: str):
    return shell("run", "digest", "--task", "What is in here?", "--workdir", folder, *more)


# --- the main job


def test_a_run_ends_well_and_says_what_it_did(shell: Shell, pages: Path):
    said = digest(shell, pages)
    assert (said.status, said.err) == (0, "")
    for expected in (
        "digest enters stage survey on offline:offline",
        "reader more/crane.md ends complete",
        "[3 of 3]",
        "digest complete after",
        "└─ reader tide.md  complete",
        "stage / region",
        "  findings ",
        "No language model was used",
    ):
        assert expected in said.out


def test_the_report_is_written_where_it_is_said_to_be(shell: Shell, pages: Path):
    said = digest(shell, pages)
    run_id = newest(shell)["run_id"]
    assert f"report   shoal-output/{run_id}/report.md" in said.out
    report = Path("shoal-output", run_id, "report.md").read_text("utf-8")
    assert "# What is in here?" in report
    assert "--- tide.md (complete) ---" in report


def test_the_trace_lies_beside_the_report_with_the_command_that_sends_it(shell: Shell, pages: Path):
    said = digest(shell, pages)
    trace = Path("shoal-output", newest(shell)["run_id"], "trace.json")
    assert f"--data-binary @{trace} http://127.0.0.1:4318/v1/traces" in said.out
    assert trace.read_bytes().startswith(b'{"resourceSpans":')


def test_the_folder_of_reports_stays_out_of_version_control_and_out_of_the_next_digest(shell: Shell, pages: Path):
    digest(shell, Path())
    Path("page.md").write_text("One page.")
    digest(shell, Path())
    assert Path("shoal-output", ".gitignore").read_text() == "*\n"
    assert shell("tree", "--json").json["children"][0]["item"] == "page.md"
    assert len(shell("tree", "--json").json["children"]) == 1


def test_the_journal_lies_in_the_state_folder_for_the_user_alone(shell: Shell, pages: Path, tmp_path: Path):
    digest(shell, pages)
    journal = tmp_path / "state" / "shoal" / "runs.db"
    assert (journal.stat().st_mode & 0o777, journal.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_json_is_one_object_of_seven_keys(shell: Shell, pages: Path):
    said = digest(shell, pages, "--json")
    assert said.out.count("\n") == 1
    assert set(said.json) == {"run_id", "status", "output", "flags", "usage", "cost_usd", "children"}
    assert set(said.json["usage"]) == {"uncached", "cache_read", "cache_write", "output", "reasoning"}
    assert [set(child) for child in said.json["children"]] == [{"run_id", "name", "status", "cost_usd"}] * 3


def test_costs_are_decimal_strings(shell: Shell, serve: Serve):
    serve(ScriptedProvider(call("submit_output", content="42"), "done", purposes={"titling": "T"}))
    Path("one.toml").write_text('[agent]\nname = "one"\n[stages.answer]\nmode = "output"\nsystem_prompt = "Answer."\n')
    said = shell("run", "./one.toml", "--json")
    assert isinstance(said.json["cost_usd"], str)
    assert Decimal(said.json["cost_usd"]) > 0


def test_an_unknown_price_is_null(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider(call("submit_output", content="42"), "done", price=None))
    assert shell("run", answers, "--json").json["cost_usd"] is None


def test_a_key_in_the_environment_is_mentioned_in_the_last_line_only(
    shell: Shell, pages: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    said = digest(shell, pages)
    *others, last = said.out.splitlines()
    assert last.startswith("OPENAI_API_KEY is set and was not used")
    assert "SHOAL_PROVIDER=openai" in last
    assert "sk-not" not in said.out + said.err
    assert not any("OPENAI_API_KEY" in line for line in others)


def test_a_provider_that_was_asked_for_leaves_keys_unmentioned(
    shell: Shell, pages: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    monkeypatch.setenv("SHOAL_PROVIDER", "offline")
    assert "OPENAI_API_KEY" not in digest(shell, pages).out


def test_another_journal_is_named_in_the_commands_that_are_suggested(shell: Shell, pages: Path, tmp_path: Path):
    said = digest(shell, pages, "--journal", str(tmp_path / "my runs.db"))
    assert f"--journal '{tmp_path}/my runs.db'" in said.out


# --- seeds


def test_seeds_reach_their_regions_by_both_spellings(shell: Shell, answers: Path):
    said = shell("run", answers, "--brief", "be short", "--seed", "house_rules=no=shouting", "--json")
    assert said.json["output"] == "brief: be short rules: no=shouting"


def test_an_option_may_spell_a_region_with_dashes(shell: Shell, answers: Path):
    assert shell("run", answers, "--house-rules", "x", "--json").json["output"] == "brief:  rules: x"


def test_a_seed_may_come_from_a_file(shell: Shell, answers: Path):
    Path("brief.txt").write_text("from a file")
    said = shell("run", answers, "--brief", "@brief.txt", "--seed", "house_rules=@@home", "--json")
    assert said.json["output"] == "brief: from a file rules: @home"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--seed", "brief"), "write `--seed NAME=TEXT`"),
        (("--seed", "=text"), "names no region"),
        (("--seed", "brief=a", "--brief", "b"), "'brief' is given twice"),
        (("--brief", "@missing.txt"), "'missing.txt' cannot be read"),
        (("--brief", "@binary"), "'binary' is no UTF-8 text"),
        (("--brief", "@."), "cannot be read: Is a directory"),
        (("--breif", "x"), "takes no seed 'breif'; it takes `brief`, `house_rules`"),
        (("--taks", "x"), "`--taks` is no option, and 'answers' takes no seed of that name; did you mean `--task`?"),
        (("--max-cost", "1"), "did you mean `--max-cost-usd`?"),
        (("--allow", "read_fiel"), "did you mean `read_file`?"),
        (("--allow", "zzz"), "names no tool of 'answers'; it has"),
        (("--workdir", "/nowhere"), "'/nowhere' is no folder"),
        (("--json", "extra"), "Unused"),
        (("--task",), "requires an argument"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    shell: Shell, answers: Path, arguments: tuple[str, ...], expected: str
):
    Path("binary").write_bytes(b"\xff\xfe\x00")
    said = shell("run", answers, *arguments)
    assert (said.status, said.out) == (2, "")
    assert expected in said.err
    assert "Traceback" not in said.err
    assert shell("ps", "--json").json == []


def test_a_seed_file_that_is_too_long_is_refused(shell: Shell, answers: Path):
    with Path("long.txt").open("wb") as file:
        file.truncate(8 * 1024 * 1024 + 1)
    assert "'long.txt' is longer than" in shell("run", answers, "--brief", "@long.txt").err


def test_an_allowed_tool_is_taken_under_its_other_name(shell: Shell, answers: Path):
    assert shell("run", answers, "--allow", "read_file", "--task", "x", "--json").status == 0


# --- blueprints


def test_a_blueprint_with_five_mistakes_gets_five_findings(shell: Shell):
    Path("bad.toml").write_text(
        """
[agent]
name = "bad"
entry_stage = "nowhere"

[context.regions]
notes = { kind = "pined", max_tokens = 10 }
other = { kind = "pinned", max_tokens = -1 }

[stages.work]
mode = "autonomus"
max_iteratons = 3
"""
    )
    said = shell("run", "./bad.toml", "--task", "x")
    assert (said.status, said.out) == (2, "")
    assert said.err.count("error: ") == 5
    assert "./bad.toml:7:18" in said.err or "bad.toml:7:18" in said.err


@pytest.mark.parametrize(("name", "expected"), [("digets", "did you mean `digest`?"), ("./no/such", "check the path")])
def test_a_blueprint_that_is_not_there_is_named(shell: Shell, name: str, expected: str):
    said = shell("run", name, "--task", "x")
    assert said.status == 2
    assert expected in said.err


def test_a_task_that_is_needed_is_asked_for(shell: Shell, pages: Path):
    said = shell("run", "digest", "--workdir", pages)
    assert (said.status, said.err) == (2, "shoal: Say what the report is for (`--task`).\n")


def test_an_environment_that_names_nobody_is_refused(shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOAL_PROVIDER", "nobody")
    said = shell("run", answers)
    assert (said.status, said.out) == (2, "")
    assert "`SHOAL_PROVIDER` is 'nobody'" in said.err


# --- folders and files


def test_an_empty_folder_is_told_of(shell: Shell, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    said = digest(shell, tmp_path / "empty")
    assert said.status == 0
    assert "'empty' holds nothing to read" in said.err.replace(str(tmp_path) + "/", "")


def test_files_that_cannot_be_read_are_told_of_and_the_others_are_read(shell: Shell, pages: Path):
    (pages / "noise.bin").write_bytes(bytes(range(256)) * 40)
    os.mkfifo(pages / "pipe")
    said = digest(shell, pages, "--json")
    assert said.status == 0
    assert "[error] 'noise.bin' is binary" in said.json["output"]
    assert len(said.json["children"]) == 4  # a pipe is no file, and nobody waits for what it may give
    assert "The tide turns twice a day." in said.json["output"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_file_without_permission_is_told_of(shell: Shell, pages: Path):
    (pages / "tide.md").chmod(0)
    assert "'tide.md'" in digest(shell, pages, "--json").json["output"]


def test_a_huge_file_is_read_in_pages(shell: Shell, pages: Path):
    (pages / "huge.md").write_text("The log goes on and on about the weather at sea. " * 40_000)
    said = digest(shell, pages, "--json")
    assert (said.status, len(said.json["children"])) == (0, 4)


def test_a_file_name_with_a_newline_stays_on_one_line(shell: Shell, pages: Path):
    (pages / "two\nlines.md").write_text("The name of this file is odd. Its text is not.")
    said = digest(shell, pages)
    assert said.status == 0
    assert "reader two\\nlines.md ends complete" in said.out
    assert "The name of this file is odd." in shell("result", newest(shell)["run_id"]).out


# --- telemetry


def test_a_receiver_in_the_environment_gets_spans(shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[object] = []
    swarm = shoal.Swarm

    def watched(*args: object, **more: object) -> object:
        made.append(more["telemetry"])
        return swarm(*args, **{**more, "telemetry": None})  # type: ignore[arg-type]

    monkeypatch.setattr("shoal.cli._hosted.shoal.Swarm", watched)
    shell("run", answers)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    shell("run", answers)
    assert made == [None, "otlp"]


# --- when it does not go well


def test_a_run_that_fails_says_why(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider())
    said = shell("run", answers, "--workdir", answers, "--json")
    assert (said.status, said.json["status"]) == (1, "error")
    assert said.err.startswith(f"shoal: run {said.json['run_id']} ended 'error': it crashed 2 times")
    assert said.err.count("\n") == 1


def test_a_paused_run_without_a_terminal_says_what_lets_it_go_on(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider(ProviderSetup("the key is not valid", remedy="set another")))
    said = shell("run", answers, "--json")
    assert (said.status, said.json["status"], said.json["output"]) == (3, "paused", None)
    assert "answers is paused: needs setup" in said.err
    assert "the key is not valid" in said.err
    assert f"shoal resume {said.json['run_id']}" in said.err


def test_a_tree_whose_children_are_all_paused_is_paused(shell: Shell, serve: Serve, pages: Path):
    from shoal.providers import offline

    class Unpaid:
        """Serves the lead and refuses its readers, as a vendor does once the money is gone."""

        stands_in = True
        default_model = "offline"

        def __init__(self) -> None:
            self._inner = offline()

        def __getattr__(self, name: str):
            return getattr(self._inner, name)

        async def stream(self, request):
            if request.situation is not None and request.situation().blueprint == "reader":
                raise ProviderSetup("no credits are left")
            async for event in self._inner.stream(request):
                yield event

    serve(Unpaid())
    said = digest(shell, pages)
    assert said.status == 3
    assert "is paused (so are 2 more): needs setup" in said.err
    assert "no credits are left" in said.err


def test_a_journal_that_cannot_be_made_is_told_of(shell: Shell, answers: Path, tmp_path: Path):
    said = shell("run", answers, "--journal", tmp_path)
    assert (said.status, said.out) == (1, "")
    assert "cannot be opened as a journal" in said.err


def test_a_report_that_cannot_be_written_is_printed(shell: Shell, answers: Path):
    Path("shoal-output").write_text("a file is in the way")
    said = shell("run", answers, "--brief", "here it is")
    assert said.status == 0
    assert "cannot be written: Not a directory" in said.err or "cannot be written: File exists" in said.err
    assert "brief: here it is" in said.out


def test_a_link_in_place_of_the_folder_of_reports_is_not_followed(shell: Shell, answers: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    Path("shoal-output").symlink_to(tmp_path / "elsewhere")
    said = shell("run", answers)
    assert "is a link to somewhere else" in said.err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_model_of_a_provider_that_is_not_here_is_refused(shell: Shell, answers: Path):
    said = shell("run", answers, "--model", "gpt-9")
    assert (said.status, said.out) == (2, "")
    assert "`--model gpt-9` names no provider that is here; write `offline:MODEL`, or set `SHOAL_PROVIDER`" in said.err


@pytest.mark.parametrize(
    ("more", "why"), [((), "`safe_commands` do not grant"), (("--no-seed-commands",), "seeds may run")]
)
def test_a_command_that_seeds_a_region_runs_only_where_the_user_lets_it(
    shell: Shell, answers: Path, more: tuple[str, ...], why: str
):
    blueprint = answers / "blueprint.toml"
    seed = 'brief = { kind = "pinned", max_tokens = 500, required = true, seed = { command = "touch seeded" } }'
    lines = [seed if line.startswith("brief =") else line for line in blueprint.read_text().splitlines()]
    blueprint.write_text("\n".join(lines))
    said = shell("run", answers, *more)
    assert (said.status, why in said.err, Path("seeded").exists()) == (2, True, False)


def test_the_users_settings_let_a_command_seed_a_region(shell: Shell, answers: Path, tmp_path: Path):
    blueprint = answers / "blueprint.toml"
    seed = 'brief = { kind = "pinned", max_tokens = 500, seed = { command = "echo seeded" } }'
    lines = [seed if line.startswith("brief =") else line for line in blueprint.read_text().splitlines()]
    blueprint.write_text("\n".join(lines))
    settings = tmp_path / "config" / "shoal" / "shoal.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[safe_commands]\nshell = ["echo"]\n')
    assert shell("run", answers, "--json").json["output"] == "brief: seeded\n rules: "
