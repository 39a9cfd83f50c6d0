"""Memory: what runs are shown of it, what they do with it, and the folder that ships."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runkit import TALK, TASK, blueprint, bodies, folded, messages, payloads, stage, swarm_of, system_text, write_files

from shoal.blueprints import Blueprint, Nudge
from shoal.errors import ConfigInvalid
from shoal.providers import Text
from shoal.runtime import FolderMemory, Note, NoteRefused
from shoal.runtime.context import estimate_text
from shoal.runtime.tools._notes import ranked, summary
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio

TOOLS = ("memory_search", "memory_read", "memory_write", "memory_list")


class Broken:
    """A memory that cannot be reached."""

    place = "far away"

    async def resident(self, budget_tokens: int) -> str:
        raise OSError("no line")

    async def recall(self, query: str) -> Sequence[Note]:
        raise OSError("no line")

    async def remember(self, name: str, text: str, *, append: bool = False) -> None:
        raise OSError("no line")


def remembering(*tools: str, components: tuple[str, ...] = ("memory",)) -> Blueprint:
    made = stage(available_tools=tools or TOOLS, nudge=Nudge(enabled=False))
    return blueprint(made, regions=(TASK, TALK), components=components)


async def ran(memory: Any, *replies: Any, made: Blueprint | None = None) -> tuple[ScriptedProvider, list[Any]]:
    provider = ScriptedProvider(*replies, "done", purposes={"titling": "A title"})
    async with swarm_of(provider, memory=memory) as swarm:
        run = await swarm.spawn(made or remembering(), task="t")
        await run.result()
        assert folded(swarm, run).dump() == swarm.state(run.run_id).dump()
        return provider, list(swarm.journal.read(run.run_id))


async def seen(memory: Any) -> str:
    provider, _ = await ran(memory)
    return system_text(bodies(provider)[0])


def loading(*names: str) -> Any:
    return call("load_tools", names=list(names))


# --- what a run is shown


async def test_where_the_user_has_no_memory_a_run_hears_nothing_of_one():
    assert await seen(None) == "## task\nt"
    provider, events = await ran(None)
    assert provider.requests[-1].tools.specs == ()
    assert payloads(events, "MemoryLoaded") == []


async def test_an_empty_memory_says_that_it_is_on(tmp_path: Path):
    assert "Memory is on and holds nothing yet" in await seen(tmp_path / "new")


async def test_a_memory_that_fails_says_that_this_means_nothing_and_takes_no_run_down():
    provider, events = await ran(Broken())
    assert "Memory did not load for this run" in system_text(bodies(provider)[0])
    assert [(p.state, p.error) for p in payloads(events, "MemoryLoaded")] == [("raised", "OSError: no line")]


async def test_what_is_remembered_is_shown_with_where_it_lies_and_how_to_reach_the_rest(tmp_path: Path):
    write_files(tmp_path, {"people/anna.md": "Likes tea.", "notes.txt": "no note"})
    said = await seen(tmp_path)
    assert said.startswith("<memory>\nWhat earlier runs kept")
    assert str(tmp_path) in said
    assert "`memory_search`" in said
    assert "### people/anna\nLikes tea.\n</memory>" in said
    assert "no note" not in said


async def test_tools_on_memory_stand_by_name_until_they_are_loaded(tmp_path: Path):
    provider, _ = await ran(tmp_path)
    assert [spec.name for spec in provider.requests[-1].tools.specs] == ["load_tools"]


async def test_a_memory_is_shown_only_where_the_blueprint_asks_for_it(tmp_path: Path):
    write_files(tmp_path, {"a.md": "secret"})
    provider, _ = await ran(tmp_path, made=remembering(components=()))
    assert "secret" not in system_text(bodies(provider)[0])


# --- the tools


async def told(memory: Any, *calls: Any) -> list[str]:
    """Return what the model reads of *calls*, made after loading the tools."""
    provider, _ = await ran(memory, loading(*TOOLS), *calls)
    return [messages(body)[-1][1] for body in bodies(provider)[2:]]


async def test_a_note_that_is_written_is_found_listed_and_read(tmp_path: Path):
    calls = (
        call("memory_write", name="tea", content="Anna likes green tea.\nNot black."),
        call("memory_write", name="tea", content="Nor coffee.", append=True),
        call("memory_search", query="GREEN things"),
        call("memory_list"),
        call("memory_read", name="tea"),
    )
    whole = "Anna likes green tea.\nNot black.\nNor coffee."
    assert await told(tmp_path, *calls) == [
        "tea: written",
        "tea: added to",
        "### tea\nAnna likes green tea.",
        f"tea ({len(whole)} characters)",
        whole,
    ]
    assert (tmp_path / "tea.md").read_text() == whole


async def test_what_is_not_there_is_said(tmp_path: Path):
    said = await told(
        tmp_path, call("memory_search", query="x y"), call("memory_list"), call("memory_read", name="none")
    )
    assert said == [
        "Nothing in memory has to do with 'x y'.",
        "Memory holds nothing yet.",
        "[error] there is no note 'none'; `memory_list` shows their names",
    ]


async def test_many_notes_are_cut_to_what_one_can_read(tmp_path: Path):
    write_files(tmp_path, {f"{number:03}.md": "tea " * 100 for number in range(510)})
    write_files(tmp_path, {"long.md": "x" * 300_000})
    found, listed = await told(tmp_path, call("memory_search", query="tea"), call("memory_list"))
    assert found.endswith("(500 more notes)")
    assert listed.endswith("(11 more)")
    assert "…" in found


async def test_a_note_longer_than_one_read_is_cut_and_says_so(tmp_path: Path):
    class Long(Broken):
        async def resident(self, budget_tokens: int) -> str:
            return ""

        async def recall(self, query: str) -> Sequence[Note]:
            return [Note("long", "é" * 200_000)]

    [said] = await told(Long(), call("memory_read", name="long"))
    assert said.endswith("[the first 262,144 of 400,000 bytes]")


async def test_a_memory_that_fails_under_a_call_is_an_error_that_the_model_reads():
    [said] = await told(Broken(), call("memory_list"))
    assert said == "[error] OSError: no line"


async def test_a_run_taken_up_where_there_is_no_memory_any_more_is_told_so():
    from toolkit import called

    result = await called("memory_list", Path())
    assert str(result.text) == "[error] there is no memory here"


# --- the folder


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../b", ".hidden", "", "a//b", "x" * 101, "a\0b"])
async def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str):
    with pytest.raises(NoteRefused, match="cannot name a note"):
        await FolderMemory(tmp_path / "m").remember(name, "x")
    assert await anyio.to_thread.run_sync(lambda: [path.name for path in tmp_path.iterdir()]) == ["m"]


async def test_a_link_out_of_the_folder_is_neither_read_nor_written(tmp_path: Path):
    memory = FolderMemory(tmp_path / "m")
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "m" / "link.md").symlink_to(tmp_path / "secret.md")
    assert await memory.recall("") == []
    with pytest.raises(NoteRefused, match="leads outside"):
        await memory.remember("link", "x")
    assert (tmp_path / "secret.md").read_text() == "secret"


async def test_a_note_that_would_be_too_long_is_refused_and_stays_as_it_is(tmp_path: Path):
    memory = FolderMemory(tmp_path)
    await memory.remember("a", "x" * 200_000)
    for append, text in ((True, "x" * 100_000), (False, "x" * 300_000)):
        with pytest.raises(NoteRefused, match="more than 262,144 bytes"):
            await memory.remember("a", text, append=append)
    assert (tmp_path / "a.md").stat().st_size == 200_000


async def test_hidden_files_and_folders_hold_no_notes(tmp_path: Path):
    write_files(tmp_path, {".git/a.md": "x", ".b.md": "x", "c.md": "x"})
    assert [note.name for note in await FolderMemory(tmp_path).recall("")] == ["c"]


def test_a_memory_that_cannot_be_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigInvalid, match="cannot be a folder"):
        FolderMemory(tmp_path / "file")


def test_a_folder_says_where_it_is(tmp_path: Path):
    assert str(tmp_path) in repr(FolderMemory(tmp_path))


NOTES = st.lists(st.builds(Note, st.text("abc", min_size=1, max_size=5), st.text("xyz \n", max_size=200)), max_size=8)


@given(NOTES, st.integers(0, 120))
def test_what_is_shown_keeps_its_budget(notes: list[Note], budget: int):
    assert estimate_text(Text.of(summary(notes, budget))) <= budget + 1


@given(NOTES)
def test_what_fits_is_shown_whole(notes: list[Note]):
    shown = summary(notes, 10_000)
    assert all(f"### {note.name}\n{note.text.strip()}" in shown for note in notes)


def test_notes_with_more_of_the_words_come_first():
    notes = [Note("a", "tea"), Note("b", "green tea"), Note("c", "coffee")]
    assert [note.name for note in ranked(notes, "Green TEA!")] == ["b", "a"]
    assert ranked(notes, "?!") == []
