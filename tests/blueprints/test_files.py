"""Whatever lies at a path, loading it gives a blueprint or says why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.blueprints import Finding, check, load, loads, locate
from shoal.errors import BlueprintInvalid

GOOD = 'agent.name = "trial"\n[stages.only]\nmode = "autonomous"\nmodel = "a:b"\nmax_iterations = 3\n'


def only_finding(path: Path) -> Finding:
    blueprint, (finding,) = check(path)
    assert blueprint is None
    assert finding.severity == "error"
    return finding


def write(path: Path, content: str | bytes = GOOD) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_folder_is_read_by_its_file(tmp_path: Path) -> None:
    write(tmp_path / "blueprint.toml")
    assert load(tmp_path).name == "trial"


def test_the_own_format_wins_where_a_folder_has_both(tmp_path: Path) -> None:
    write(tmp_path / "agent.leviath", GOOD.replace("trial", "other"))
    write(tmp_path / "blueprint.toml")
    assert load(tmp_path).name == "trial"


def test_a_file_is_read_by_itself_whatever_its_name(tmp_path: Path) -> None:
    assert load(write(tmp_path / "mine.toml")).folder == tmp_path.resolve()


def test_a_good_file_has_no_finding(tmp_path: Path) -> None:
    assert check(write(tmp_path / "blueprint.toml"))[1] == ()


def test_a_path_may_be_text(tmp_path: Path) -> None:
    write(tmp_path / "blueprint.toml")
    assert load(str(tmp_path)).name == "trial"


def test_a_linked_folder_is_remembered_as_the_folder_that_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real" / "blueprint.toml")
    (tmp_path / "link").symlink_to("real")
    assert load(tmp_path / "link").folder == (tmp_path / "real").resolve()


def test_a_linked_file_belongs_to_the_folder_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path / "elsewhere.toml")
    (tmp_path / "here" / "blueprint.toml").symlink_to("../elsewhere.toml")
    assert load(tmp_path / "here").folder == (tmp_path / "here").resolve()


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    finding = only_finding(tmp_path / "nothing")
    assert finding.id == "file-missing"
    assert "does not exist" in finding.message


def test_a_folder_without_a_blueprint_says_which_file_it_lacks(tmp_path: Path) -> None:
    assert "`blueprint.toml`, `agent.leviath`" in only_finding(tmp_path).message


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "blueprint.toml")
    assert "is no regular file" in only_finding(tmp_path / "blueprint.toml").message


def test_a_path_that_no_system_takes_is_a_finding(tmp_path: Path) -> None:
    assert only_finding(tmp_path / ("x" * 300)).id == "file-unreadable"


def test_bytes_that_are_no_text_have_their_place(tmp_path: Path) -> None:
    finding = only_finding(write(tmp_path / "blueprint.toml", "# é\na = 'é".encode() + b"\xff'"))
    assert (finding.id, finding.line, finding.column) == ("file-encoding", 2, 7)
    assert "0xff" in finding.message


def test_another_encoding_is_called_by_its_name(tmp_path: Path) -> None:
    assert "UTF-16" in only_finding(write(tmp_path / "blueprint.toml", GOOD.encode("utf-16"))).message


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    plain, marked = write(tmp_path / "a.toml"), write(tmp_path / "b.toml", b"\xef\xbb\xbf" + GOOD.encode())
    assert load(plain) == load(marked)


def test_an_empty_file_lacks_its_first_table(tmp_path: Path) -> None:
    finding = only_finding(write(tmp_path / "blueprint.toml", ""))
    assert (finding.id, finding.line, finding.column) == ("missing-key", 1, 1)
    assert "`[agent]`" in finding.message


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    finding = only_finding(write(tmp_path / "blueprint.toml", GOOD + "#" * 1_048_576))
    assert finding.id == "file-too-big"


def test_the_limit_of_bytes_can_be_set_and_is_exact(tmp_path: Path) -> None:
    path = write(tmp_path / "blueprint.toml")
    assert load(path, max_bytes=len(GOOD)).name == "trial"
    with pytest.raises(BlueprintInvalid, match="more than"):
        load(path, max_bytes=len(GOOD) - 1)


def test_a_syntax_error_has_file_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "blueprint.toml", GOOD + "x = \n")
    finding = only_finding(path)
    assert (finding.id, finding.file, finding.line, finding.column) == ("toml-syntax", str(path), 6, 5)


def test_a_key_that_is_written_twice_names_the_first(tmp_path: Path) -> None:
    finding = only_finding(write(tmp_path / "blueprint.toml", GOOD + 'mode = "output"\n'))
    assert (finding.id, finding.line) == ("duplicate-key", 6)
    assert "the first is on line 3" in finding.message


FIVE = """\
agent.name = "trial"

[context.regions]
notes = { kind = "hashmap", budget = "20" }
todo  = { kind = "cheklist" }

[stages.plan]
max_iterations = "many"

[stages.plan.transitions.write]
gate = { require_regions = ["notes", "noets"] }

[stages.write]
max_revisit = 2
"""


def test_five_mistakes_give_five_findings_in_one_go_each_in_its_place() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        loads(FIVE, file="blueprint.toml")
    places = [(one.id, one.line, one.column, one.key) for one in refused.value.findings]
    assert places == [
        ("bad-value", 4, 38, "context.regions.notes.budget"),
        ("bad-value", 5, 18, "context.regions.todo.kind"),
        ("wrong-type", 8, 18, "stages.plan.max_iterations"),
        ("unknown-region", 11, 38, "stages.plan.transitions.write.gate.require_regions[1]"),
        ("unknown-key", 14, 1, "stages.write.max_revisit"),
    ]


def test_the_error_lists_every_finding_with_its_place_and_what_to_write() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        loads(FIVE, file="blueprint.toml")
    lines = str(refused.value).split("\n")
    assert lines[0] == "blueprint.toml is no usable blueprint; mend what follows:"
    assert lines[1].startswith("  blueprint.toml:4:38: error: `budget` is '20'; write a share above 0 %")
    assert "did you mean `checklist`?" in lines[2]
    assert "did you mean `notes`?" in lines[4]
    assert "did you mean `max_revisits`?" in lines[5]
    assert lines[5].count("`") > 40  # all keys that a stage takes
    assert len(lines) == 6


def test_a_mistake_is_not_blamed_on_what_depends_on_it() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        loads(
            'agent.name = "trial"\n[context.regions]\ntodo = { kind = "cheklist" }\n'
            '[stages.a]\nmode = "fanout"\nworker_stage = "b"\n'
            '[stages.a.transitions]\nb = { gate = { require_no_open_items = "todo" }, condition = "stuk" }\n'
            "[stages.b]\n"
        )
    assert [one.key for one in refused.value.findings] == [
        "context.regions.todo.kind",
        "stages.a.mode",
        "stages.a.transitions.b.condition",
    ]


def test_a_stage_that_cannot_be_read_is_there_for_those_that_name_it() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        loads('agent.name = "trial"\n[stages]\na = { transitions = { b = {} } }\nb = 7\n')
    assert [one.key for one in refused.value.findings] == ["stages.b"]


def test_fifty_thousand_unknown_keys_are_all_found_in_a_moment() -> None:
    text = 'agent.name = "trial"\n' + "".join(f"k{number} = 1\n" for number in range(50_000))
    with pytest.raises(BlueprintInvalid) as refused:
        loads(text)
    assert len(refused.value.findings) == 50_000


def test_scripts_must_lie_in_the_folder_when_there_is_one(tmp_path: Path) -> None:
    text = GOOD + '[context.regions.r]\nkind = "custom"\nscript = "scripts/r.py"\n'
    assert loads(text).regions[0].script == "scripts/r.py"
    assert only_finding(write(tmp_path / "blueprint.toml", text)).id == "script-missing"
    (tmp_path / "scripts").mkdir()
    write(tmp_path / "scripts" / "r.py", "")
    assert load(tmp_path).regions[0].script == "scripts/r.py"


def test_findings_of_later_checks_get_their_places_from_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "blueprint.toml", GOOD)
    late = [
        Finding("x", "warning", "m", key="stages.only.max_iterations"),
        Finding("x", "note", "m", key="agent.name"),
        Finding("x", "note", "m", "f", 1, 1, "kept"),
        Finding("x", "note", "m"),
    ]
    placed = [(one.file, one.line, one.column) for one in locate(tmp_path, late)]
    assert placed == [("f", 1, 1), (str(path), 1, 1), (str(path), 1, 14), (str(path), 5, 18)]


def test_findings_keep_as_they_are_where_the_file_is_gone_or_broken(tmp_path: Path) -> None:
    late = (Finding("x", "warning", "m", key="stages.only"),)
    assert locate(tmp_path, late) == late
    assert locate(write(tmp_path / "blueprint.toml", "x ="), late) == late
