"""Runs travel as a file of lines: what arrives is what was written, all of it or nothing."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest
from anyvalue import of
from hypothesis import given, settings
from hypothesis import strategies as st
from journalkit import NOW, append, changed, said, spawned
from runkit import blueprint, events_of, stage, swarm_of

from shoal.errors import JournalFailed, JournalNewer, RunNotFound, SpawnRefused
from shoal.providers import Text
from shoal.runtime import Event, MemoryJournal, PartStored, SqliteJournal, SqliteReader
from shoal.runtime.events import (
    NUMBERS,
    BlueprintChanged,
    CallOpened,
    FactsRecorded,
    MemoryLoaded,
    RunSpawned,
    ToolsFound,
)
from shoal.runtime.journal import FORMAT, export_tree, import_tree
from shoal.testing import Say, ScriptedProvider

DEFINED = Event(
    "r", 1, NOW, RunSpawned("name", "made", Text.of("é"), (), "/", None, "r", 0, scripts=(("s", "source"),))
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "there.db"


def exported(*events: Event, run_id: str = "r", key: str | None = None) -> list[bytes]:
    """Return what a journal of *events*, of one run made of two definitions, is exported as."""
    journal = MemoryJournal()
    journal.define("made", b"\x00what it is made of")
    journal.define("source", b"a script")
    journal.store("part", b"\xffbytes")
    first = (
        DEFINED
        if key is None
        else msgspec.structs.replace(DEFINED, payload=msgspec.structs.replace(DEFINED.payload, key=key))
    )
    append(journal, first, *events)
    journal.close()
    return list(export_tree(journal, run_id))


def test_what_arrives_is_what_was_written(path: Path):
    assert import_tree(path, exported(said(2), said(3))) == "r"
    with closing(SqliteReader(path)) as reader:
        assert list(reader.read("r")) == [DEFINED, said(2), said(3)]
        assert (reader.definition("made"), reader.definition("source")) == (b"\x00what it is made of", b"a script")


def test_stored_parts_travel_with_their_run(path: Path):
    import_tree(path, exported(Event("r", 2, NOW, PartStored("part", "n", "image/png", 6))))
    with closing(SqliteReader(path)) as reader:
        assert reader.part("part") == b"\xffbytes"


def test_what_is_exported_again_is_the_same(path: Path):
    first = exported(said(2))
    import_tree(path, first)
    with closing(SqliteReader(path)) as reader:
        assert list(export_tree(reader, "r")) == first


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind is not RunSpawned], ids=lambda kind: kind.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_every_kind_of_event_travels(kind: type, data: st.DataObject):
    payload = data.draw(of(kind))
    if hasattr(payload, "renders"):
        payload = msgspec.structs.replace(payload, renders=())
    if isinstance(payload, PartStored):
        payload = msgspec.structs.replace(payload, digest="part")
    if isinstance(payload, BlueprintChanged):
        payload = msgspec.structs.replace(payload, definition="made", scripts=())
    if isinstance(payload, FactsRecorded | MemoryLoaded):
        payload = msgspec.structs.replace(payload, digest="made")
    if isinstance(payload, CallOpened):
        payload = msgspec.structs.replace(payload, tools="made")
    if isinstance(payload, ToolsFound):
        payload = msgspec.structs.replace(payload, files=(("tools/look.py", "made"),))
    lines = exported(Event("r", 2, NOW, payload))
    assert json.loads(lines[-2])["kind"] == NUMBERS[kind]


def test_a_tree_travels_as_a_whole_whichever_of_its_runs_is_named(path: Path):
    journal = MemoryJournal()
    journal.define("digest", b"d")
    append(journal, spawned("root"), spawned("child", root="root", parent="root"), said(2, "child"))
    journal.close()
    lines = list(export_tree(journal, "child"))
    assert import_tree(path, lines) == "root"
    with closing(SqliteReader(path)) as reader:
        assert [(row.run_id, row.parent, row.host) for row in reader.runs()] == [
            ("root", None, None),
            ("child", "root", None),
        ]


@pytest.mark.parametrize("place", [0, 1, 3, -1])
def test_a_line_that_is_missing_is_noticed(path: Path, place: int):
    lines = exported(said(2), said(3))
    del lines[place]
    with pytest.raises(JournalFailed):
        import_tree(path, lines)
    assert not path.exists()


def test_a_letter_that_was_changed_is_noticed(path: Path):
    lines = exported(said(2, text="told"))
    lines = [line.replace(b"told", b"sold") for line in lines]
    with pytest.raises(JournalFailed, match="its digest is another"):
        import_tree(path, lines)


def test_a_line_that_was_cut_is_noticed(path: Path):
    lines = exported(said(2))
    with pytest.raises(JournalFailed, match="line 4 cannot be read"):
        import_tree(path, [*lines[:3], lines[3][:20]])


@pytest.mark.parametrize("line", [b"{}\n", b'{"shoal":"else"}\n', b'{"a": 1}\n'])
def test_another_file_is_no_export(path: Path, line: bytes):
    with pytest.raises(JournalFailed, match="this is no export of runs"):
        import_tree(path, [line])


def test_an_export_of_a_newer_version_is_refused(path: Path):
    head = json.dumps({"shoal": "runs", "format": FORMAT + 1, "root": "r"}).encode()
    with pytest.raises(JournalNewer, match=f"has format {FORMAT + 1}"):
        import_tree(path, [head])


def test_a_run_that_is_there_already_is_not_imported_over(path: Path):
    lines = exported(said(2))
    import_tree(path, lines)
    with pytest.raises(JournalFailed, match="has run r already"):
        import_tree(path, lines)


def test_a_key_that_is_taken_stays_with_whom_it_has(path: Path):
    with closing(SqliteJournal(path)) as journal:
        append(journal, Event("mine", 1, NOW, RunSpawned("n", "d", None, (), "/", None, "mine", 0, key="order-42")))
    import_tree(path, exported(key="order-42"))
    with closing(SqliteReader(path)) as reader:
        assert {row.run_id: row.key for row in reader.runs()} == {"mine": "order-42", "r": None}


def test_a_key_that_is_free_is_kept(path: Path):
    import_tree(path, exported(key="order-42"))
    with closing(SqliteReader(path)) as reader:
        assert reader.runs()[0].key == "order-42"


def test_a_history_of_a_newer_version_is_not_exported(path: Path):
    import_tree(path, exported(said(2), said(3)))
    changed(path, "UPDATE events SET kind = 9999 WHERE seq = 2")
    with closing(SqliteReader(path)) as reader, pytest.raises(SpawnRefused, match="newer version"):
        list(export_tree(reader, "r"))


def test_an_event_that_only_a_newer_version_knows_is_refused(path: Path):
    lines = [line.replace(b'"kind":25', b'"kind":9999') for line in exported(said(2))[:-1]]
    end = json.dumps({"digest": hashlib.sha256(b"".join(lines)).hexdigest()}).encode()
    with pytest.raises(JournalNewer, match="event 2 of run r is of a kind that only a newer version knows"):
        import_tree(path, [*lines, end])


def test_a_run_that_is_not_there_is_not_exported():
    with pytest.raises(RunNotFound):
        list(export_tree(MemoryJournal(), "r"))


@pytest.mark.anyio
async def test_an_imported_run_goes_on_where_it_was(path: Path, tmp_path: Path):
    made = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))
    slow = ScriptedProvider("one", Say("late", delay_s=1e5), purposes={"titling": "T"})
    async with swarm_of(slow) as swarm:
        run = await swarm.spawn(made, task="x")
        await anyio.sleep(10)
        lines = list(export_tree(swarm.journal, run.run_id))
        before = events_of(swarm, run)
    await anyio.to_thread.run_sync(import_tree, path, lines)
    with closing(SqliteJournal(path, host="there")) as journal:
        async with swarm_of(ScriptedProvider("two"), journal=journal, seed=1) as swarm:
            again = await swarm.resume_tree(run.run_id)
            assert (await again.result()).output == "two"
            assert events_of(swarm, again)[: len(before)] == before
