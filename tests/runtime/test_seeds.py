"""Seeds: what regions hold before the first request, and what refuses a spawn before anything is read."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, payloads, run_once, stage, swarm_of, write_files

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    FilesSeed,
    GlobSeed,
    LiteralSeed,
    Region,
    Seed,
    Stage,
    ToolSeedCall,
    ToolsSeed,
)
from shoal.errors import SpawnRefused
from shoal.providers import Text
from shoal.runtime import MemoryJournal, ToolResult, tool
from shoal.runtime._seeds import Resolved, Sources, check_callers, fitted, resolve_seeds
from shoal.runtime._threads import limiter
from shoal.runtime.context import SeedBlock, Shelf
from shoal.testing import ScriptedProvider, call

pytestmark = pytest.mark.anyio


async def no_tool(name: str, args: Mapping[str, Any]) -> ToolResult:
    raise AssertionError(f"{name} is not called")


async def no_line(*args: Any) -> str:
    raise AssertionError(f"{args} is not run")


def sources(workdir: Path, *, folder: Path | None = None, call: Any = no_tool, **more: Any) -> Sources:
    """Return where seeds come from in *workdir*; call it inside a running event loop."""
    made = Blueprint("b", (Stage("work"),), folder=folder)
    limits = {"caller": {}, "most_bytes": 1000, "most_files": 5, **more}
    caller = {name: Text.of(text) for name, text in limits.pop("caller").items()}
    return Sources(made, workdir.resolve(), caller, call, limiter(4), run_command=no_line, run_script=no_line, **limits)


PLAIN = Region("r")


def region(seed: Seed, name: str = "r", **more: Any) -> Region:
    return Region(name, kind="pinned", seed=seed, **more)


async def resolved(seed: Seed, workdir: Path, *, required: bool = False, **more: Any) -> Resolved:
    """Return what one *seed* gives."""
    return (await resolve_seeds([region(seed, required=required)], sources(workdir, **more)))[0]


def texts(resolved: Resolved) -> list[str]:
    """Return the text of each block that did not fail."""
    return [str(block.text) for block in resolved.blocks if block.ok]


async def refused(seed: Seed, workdir: Path, **more: Any) -> str:
    """Return why a spawn with *seed* is refused."""
    with pytest.raises(SpawnRefused) as caught:
        await resolved(seed, workdir, **more)
    return str(caught.value)


# --- what was given, and what is written


async def test_a_callers_value_fills_the_region_that_takes_its_name(tmp_path: Path):
    assert texts(await resolved(CallerSeed("brief"), tmp_path, caller={"brief": "be brief"})) == ["be brief"]


async def test_a_value_that_was_not_given_leaves_its_region_empty(tmp_path: Path):
    assert texts(await resolved(CallerSeed("brief"), tmp_path)) == []


async def test_a_literal_is_its_text(tmp_path: Path):
    assert texts(await resolved(LiteralSeed("as it stands"), tmp_path)) == ["as it stands"]


async def test_regions_without_a_seed_give_nothing_and_the_others_stand_in_order(tmp_path: Path):
    write_files(tmp_path, {"a": "file"})
    regions = [
        region(FilesSeed(("a",)), "late"),
        Region("none"),
        region(LiteralSeed("text"), "soon"),
        region(FilesSeed(("a",)), "later"),
    ]
    given = await resolve_seeds(regions, sources(tmp_path))
    assert [(each.region, each.form) for each in given] == [("late", "files"), ("soon", "literal"), ("later", "files")]


async def test_regions_are_resolved_at_the_same_time(tmp_path: Path):
    async def slow(name: str, args: Mapping[str, Any]) -> ToolResult:
        await anyio.sleep(10)
        return ToolResult.of(name)

    regions = [region(ToolsSeed((ToolSeedCall(name),)), name) for name in ("a", "b", "c")]
    began = anyio.current_time()
    await resolve_seeds(regions, sources(tmp_path, call=slow))
    assert anyio.current_time() - began == pytest.approx(10, abs=1)


# --- what callers may give


def takes(*regions: Region, **given: str) -> None:
    named = {each.name: each for each in regions}
    check_callers(named, "reader", {name: Text.of(value) for name, value in given.items()})


def refusal(*regions: Region, **given: str) -> str | None:
    """Return why values are refused; `None` where they are taken."""
    try:
        takes(*regions, **given)
    except SpawnRefused as refused:
        return str(refused)
    return None


BRIEF = region(CallerSeed("brief"), "brief")
NEEDED = region(CallerSeed("path"), "where", required=True)


def test_values_that_regions_take_are_taken():
    assert refusal(TASK, BRIEF, NEEDED, task="t", brief="b", path="p") is None


def test_values_that_are_not_needed_may_be_left_out():
    assert refusal(TASK, BRIEF) is None


def test_a_name_that_no_region_takes_is_refused_with_the_names_that_are():
    with pytest.raises(SpawnRefused, match="blueprint 'reader' takes no seed 'brif', 'x'; it takes `brief`, `path`"):
        takes(TASK, BRIEF, NEEDED, brif="b", path="p", x="y")
    with pytest.raises(SpawnRefused, match="takes no seed 'x'; it takes none"):
        takes(TASK, x="y")


def test_a_task_that_no_region_takes_is_refused():
    with pytest.raises(SpawnRefused, match="'reader' takes no task; give it its seeds instead: `brief`"):
        takes(BRIEF, task="t")


@pytest.mark.parametrize("given", [{}, {"path": ""}, {"path": " \n"}])
def test_a_value_that_a_region_needs_may_not_be_missing_or_blank(given: dict[str, str]):
    with pytest.raises(
        SpawnRefused,
        match=r"'reader' needs the seed `path` \(`seeds=\{'path': …\}`, or `--seed path=TEXT`\) for its region `where`",
    ):
        takes(NEEDED, **given)


def test_a_task_that_a_region_needs_is_asked_for_as_such():
    with pytest.raises(SpawnRefused, match=r"needs a task \(`task=…`, or `--task TEXT`\)"):
        takes(region(CallerSeed("task"), "task", required=True))


def test_a_region_says_in_its_own_words_what_it_needs():
    with pytest.raises(SpawnRefused, match=r"^Say where, in where$"):
        takes(region(CallerSeed("path"), "where", required=True, required_message="Say where, in {region}"))


def test_of_two_regions_that_take_one_value_each_may_need_it():
    free = region(CallerSeed("path"), "other")
    for regions in ([NEEDED, free], [free, NEEDED]):
        with pytest.raises(SpawnRefused, match="for its region `where`"):
            takes(*regions)


# --- files


async def test_files_stand_in_order_each_under_its_path(tmp_path: Path):
    write_files(tmp_path, {"b.md": "two", "sub/a.md": "one\n"})
    given = await resolved(FilesSeed(("b.md", "sub/a.md")), tmp_path)
    assert texts(given) == ["--- b.md ---\ntwo", "--- sub/a.md ---\none\n"]
    assert [block.name for block in given.blocks] == ["b.md", "sub/a.md"]


async def test_a_path_may_lie_in_the_blueprints_own_folder(tmp_path: Path):
    write_files(tmp_path, {"own/rules.md": "rules", "work/x": "x"})
    given = await resolved(FilesSeed(("blueprint:rules.md",)), tmp_path / "work", folder=tmp_path / "own")
    assert texts(given) == ["--- blueprint:rules.md ---\nrules"]


async def test_a_blueprint_without_a_folder_has_no_files_of_its_own(tmp_path: Path):
    assert "build it with `folder=`" in await refused(FilesSeed(("blueprint:rules.md",)), tmp_path)


ESCAPES = ["../secret", "/etc/passwd", "sub/../../secret", "link", "folder/secret"]


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("own", ["", "blueprint:"])
@pytest.mark.parametrize("path", ESCAPES)
async def test_a_path_that_leads_outside_refuses_the_spawn(tmp_path: Path, path: str, own: str, required: bool):
    root = write_files(tmp_path, {"secret": "secret", "work/sub/x": "x"}) / "work"
    (root / "link").symlink_to("../secret")
    (root / "folder").symlink_to("..")
    said = await refused(FilesSeed((own + path,)), root, required=required, folder=root)
    where = "the blueprint's folder" if own else "the working directory"
    assert f"names {own + path!r}, which leads outside {where}; name a path inside it" in said


async def test_nothing_is_read_where_one_path_leads_outside(tmp_path: Path):
    root = write_files(tmp_path, {"work/x": "x"}) / "work"
    (root / "odd*name").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    called: list[str] = []

    async def call(name: str, args: Mapping[str, Any]) -> ToolResult:
        called.append(name)
        return ToolResult.of("")

    regions = [region(ToolsSeed((ToolSeedCall("look"),)), "first"), region(FilesSeed(("x", "odd*name")), "second")]
    with pytest.raises(SpawnRefused, match="leads outside"):
        await resolve_seeds(regions, sources(root, call=call))
    assert called == []


async def test_a_link_that_is_made_after_the_check_is_not_followed(tmp_path: Path):
    root = write_files(tmp_path, {"secret": "secret", "work/a": "a"}) / "work"

    async def swap(name: str, args: Mapping[str, Any]) -> ToolResult:
        (root / "a").unlink()
        (root / "a").symlink_to("../secret")
        return ToolResult.of("done")

    made = sources(root, call=swap)
    calls = ToolsSeed((ToolSeedCall("swap"),))
    await resolve_seeds([region(calls)], made)
    with pytest.raises(SpawnRefused, match="leads outside"):
        await resolve_seeds([region(FilesSeed(("a",)))], made)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000 + "/.."])
async def test_what_can_be_no_path_refuses_the_spawn_or_is_missing(tmp_path: Path, path: str):
    seed = FilesSeed((path,))
    with pytest.raises(SpawnRefused):
        await resolved(seed, tmp_path, required=True)


async def test_a_loop_of_links_is_no_path(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    assert "'loop'" in await refused(FilesSeed(("loop",)), tmp_path, required=True)


UNREADABLE = {
    "gone": "'gone' does not exist",
    "sub": "'sub' is a folder",
    "pipe": "'pipe' is a device, pipe or socket, not a file",
    "big": "'big' is larger than 1,000 bytes; raise `seed_bytes`",
}


def odd_files(root: Path) -> Path:
    write_files(root, {"good": "good", "sub/x": "x", "big": "x" * 1001, "fits": "x" * 1000})
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("path", UNREADABLE)
async def test_a_file_that_cannot_be_read_is_left_out_with_a_note(tmp_path: Path, path: str):
    given = await resolved(FilesSeed((path, "good")), odd_files(tmp_path))
    assert (texts(given), given.notes) == (["--- good ---\ngood"], (UNREADABLE[path],))


@pytest.mark.parametrize("path", UNREADABLE)
async def test_a_file_that_cannot_be_read_refuses_the_spawn_where_its_region_is_required(tmp_path: Path, path: str):
    said = await refused(FilesSeed((path, "good")), odd_files(tmp_path), required=True)
    assert said == f"the seed of region 'r' cannot be read: {UNREADABLE[path]}"


@pytest.mark.parametrize("required", [True, False])
async def test_a_file_that_cannot_be_read_later_is_a_block_that_failed(tmp_path: Path, required: bool):
    given = await resolved(FilesSeed(("gone", "good")), odd_files(tmp_path), required=required, at_spawn=False)
    assert [(block.name, block.ok) for block in given.blocks] == [("gone", False), ("good", True)]


async def test_a_file_as_large_as_the_limit_is_read(tmp_path: Path):
    assert texts(await resolved(FilesSeed(("fits",)), odd_files(tmp_path))) == ["--- fits ---\n" + "x" * 1000]


async def test_the_first_refusal_in_the_layouts_order_is_the_one_that_is_told(tmp_path: Path):
    """Whichever of them fails first."""

    async def fail(name: str, args: Mapping[str, Any]) -> ToolResult:
        await anyio.sleep({"slow": 5, "fast": 1}[name])
        return ToolResult.error(name)

    regions = [region(ToolsSeed((ToolSeedCall(name),)), name, required=True) for name in ("slow", "fast")]
    with pytest.raises(SpawnRefused, match="region 'slow'"):
        await resolve_seeds(regions, sources(tmp_path, call=fail))


async def test_files_are_read_without_holding_up_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_files(tmp_path, {"a": "a"})
    threads: set[int] = set()
    opens = os.open

    def slow(*args: Any, **more: Any) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.001)
        return opens(*args, **more)

    monkeypatch.setattr(os, "open", slow)
    await resolved(FilesSeed(("a",)), tmp_path)
    assert threads
    assert threading.get_ident() not in threads


# --- globs


async def test_a_glob_gives_every_match_in_sorted_order(tmp_path: Path):
    write_files(tmp_path, {"b.md": "b", "a.md": "a", "a.txt": "", "sub/c.md": "c"})
    given = await resolved(GlobSeed("**/*.md"), tmp_path)
    assert (given.form, texts(given)) == ("glob", ["--- a.md ---\na", "--- b.md ---\nb", "--- sub/c.md ---\nc"])


@pytest.mark.parametrize("pattern", ["sub/**", "sub/**/*", "./sub/**", "sub/../sub/**"])
async def test_two_stars_at_the_end_mean_all_files_below(tmp_path: Path, pattern: str):
    write_files(tmp_path, {"sub/a": "a", "sub/deep/b": "b", "other": ""})
    assert [Path(block.name).name for block in (await resolved(GlobSeed(pattern), tmp_path)).blocks] == ["a", "b"]


async def test_a_glob_may_lie_in_the_blueprints_own_folder(tmp_path: Path):
    write_files(tmp_path, {"own/a.md": "a", "work/b.md": "b"})
    given = await resolved(GlobSeed("blueprint:*.md"), tmp_path / "work", folder=tmp_path / "own")
    assert texts(given) == ["--- blueprint:a.md ---\na"]


async def test_a_glob_without_a_match_is_empty(tmp_path: Path):
    assert texts(await resolved(GlobSeed("*.md"), tmp_path)) == []


async def test_a_glob_without_a_match_refuses_the_spawn_where_its_region_is_required(tmp_path: Path):
    said = await refused(GlobSeed("*.md"), tmp_path, required=True)
    assert said == "region 'r' is required and its seed glob gives nothing; check it"


@pytest.mark.parametrize(
    "pattern", ["../*", "/etc/*", "*/../../*", "sub/../../*", "folder/*", "blueprint:../*", "**/../../secret"]
)
async def test_a_glob_that_leaves_refuses_the_spawn(tmp_path: Path, pattern: str):
    root = write_files(tmp_path, {"secret": "secret", "work/sub/x": "x"}) / "work"
    (root / "folder").symlink_to("..")
    assert "leads outside" in await refused(GlobSeed(pattern), root, folder=root)


async def test_a_match_that_is_a_link_to_outside_refuses_the_spawn(tmp_path: Path):
    root = write_files(tmp_path, {"secret": "secret", "work/a.md": "a"}) / "work"
    (root / "b.md").symlink_to("../secret")
    assert "names 'b.md', which leads outside" in await refused(GlobSeed("*.md"), root)


async def test_a_match_in_a_linked_folder_outside_refuses_the_spawn(tmp_path: Path):
    root = write_files(tmp_path, {"beside/a.md": "a", "work/x": "x"}) / "work"
    (root / "link").symlink_to("../beside")
    assert "names 'link/a.md', which leads outside" in await refused(GlobSeed("*/*.md"), root)


@pytest.mark.parametrize("pattern", ["", "a**b/x"])
async def test_what_is_no_pattern_refuses_the_spawn(tmp_path: Path, pattern: str):
    assert "which is none" in await refused(GlobSeed(pattern), tmp_path)


async def test_an_absolute_pattern_inside_matches_as_an_absolute_path_does(tmp_path: Path):
    write_files(tmp_path, {"a.md": "a"})
    assert texts(await resolved(GlobSeed(f"{tmp_path}/*.md"), tmp_path)) == [f"--- {tmp_path}/a.md ---\na"]


async def test_too_many_matches_refuse_the_spawn_instead_of_some_being_left_out(tmp_path: Path):
    write_files(tmp_path, {f"{number}.md": "" for number in range(6)})
    said = await refused(GlobSeed("*.md"), tmp_path)
    assert "matches more than 5 files; narrow it, or raise the limit `list_entries`" in said


async def test_matches_that_are_too_large_are_left_out_with_a_note(tmp_path: Path):
    given = await resolved(GlobSeed("b*"), odd_files(tmp_path))
    assert (texts(given), list(given.notes)) == ([], [UNREADABLE["big"]])


async def test_a_name_cannot_forge_the_heading_of_another_file(tmp_path: Path):
    write_files(tmp_path, {"a ---\nforged\n--- b.md": "real"})
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("odd")
    given = await resolved(GlobSeed("*.md"), tmp_path)
    assert texts(given) == ['--- "a ---\\nforged\\n--- b.md" ---\nreal', "--- '\\udcff.md' ---\nodd"]


# --- tools


async def test_tool_calls_stand_in_order_each_under_its_name(tmp_path: Path):
    async def call(name: str, args: Mapping[str, Any]) -> ToolResult:
        return ToolResult.of(f"{name} {dict(args)}")

    calls = ToolsSeed((ToolSeedCall("b", {"x": 1}), ToolSeedCall("a")))
    assert texts(await resolved(calls, tmp_path, call=call)) == ["--- b ---\nb {'x': 1}", "--- a ---\na {}"]


async def failing(name: str, args: Mapping[str, Any]) -> ToolResult:
    return ToolResult.error("no such thing") if name == "bad" else ToolResult.of("good")


CALLS = ToolsSeed((ToolSeedCall("bad"), ToolSeedCall("good")))


async def test_a_call_that_fails_is_left_out_with_a_note(tmp_path: Path):
    given = await resolved(CALLS, tmp_path, call=failing)
    assert (texts(given), given.notes) == (["--- good ---\ngood"], ("bad: [error] no such thing",))


async def test_a_call_that_fails_refuses_the_spawn_where_its_region_is_required(tmp_path: Path):
    said = await refused(CALLS, tmp_path, call=failing, required=True)
    assert said == "region 'r' is required and its seed tool `bad` failed: [error] no such thing"


async def test_a_call_that_fails_later_is_a_block_that_failed(tmp_path: Path):
    given = await resolved(CALLS, tmp_path, call=failing, required=True, at_spawn=False)
    assert [(block.name, block.ok) for block in given.blocks] == [("bad", False), ("good", True)]


# --- fitting


def block(text: str, tokens: int, name: str = "a") -> SeedBlock:
    return SeedBlock(name, Text.of(text), tokens)


def test_what_fits_is_kept_as_it_is():
    given = Resolved("r", "files", (block("x" * 40, 10), block("y" * 40, 10, "b")), ("a note",))
    assert fitted(given, 20, PLAIN, Shelf(), refuses=True) == given


def test_what_does_not_fit_is_cut_with_a_marker_and_noted():
    fitting = fitted(Resolved("r", "files", (block("x" * 400, 100),)), 50, PLAIN, Shelf(), refuses=False)
    text = str(fitting.blocks[0].text)
    assert text.endswith("\n[cut: about 50 of 100 tokens]")
    assert fitting.blocks[0].tokens <= 50
    assert fitting.notes == (f"a: {fitting.blocks[0].tokens} of 100 tokens fit",)


def test_blocks_for_which_nothing_is_left_are_dropped_and_noted():
    given = Resolved("r", "tools", (block("x" * 40, 10), block("y" * 40, 10, "b")))
    fitting = fitted(given, 10, PLAIN, Shelf(), refuses=False)
    assert [str(each.text)[0] for each in fitting.blocks] == ["x"]
    assert fitting.notes == ("b: 0 of 10 tokens fit",)


def test_a_callers_word_is_never_cut():
    with pytest.raises(SpawnRefused, match="to region 'r' is 100 tokens, and it holds 50; give less, or raise its"):
        fitted(Resolved("r", "caller", (block("x" * 400, 100),)), 50, PLAIN, Shelf(), refuses=True)


# --- at a spawn


@tool(reads=True)
async def weather() -> str:
    """Say what the weather is."""
    return "rain"


@tool(permission="ask")
async def launch() -> str:
    """Launch it."""
    raise AssertionError("nobody approved")


@tool
async def broken() -> str:
    """Break."""
    raise ZeroDivisionError("it broke")


def seeded(*names: str, **args: Any) -> Region:
    return Region("facts", kind="pinned", seed=ToolsSeed(tuple(ToolSeedCall(name, args) for name in names)))


async def spawned(facts: Region, workdir: Path) -> Any:
    """Run a blueprint whose region `facts` has a seed, and return the event that filled it."""
    made = blueprint(stage(), regions=(TASK, facts, NOTES, TALK))
    provider = ScriptedProvider("done", purposes={"titling": "T"})
    _, events = await run_once(made, provider, workdir=workdir, tools=(weather, launch, broken))
    return next(each for each in payloads(events, "SeedResolved") if each.region == "facts")


async def test_a_seed_calls_built_in_tools_and_functions_behind_their_gates(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "text"})
    facts = await spawned(seeded("list_dir", "weather"), tmp_path)
    assert [str(each.text) for each in facts.blocks] == ["--- list_dir ---\na.txt", "--- weather ---\nrain"]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        (
            "launch",
            "launch: [error] `launch` needs somebody's approval, and nobody is there to ask before a run begins",
        ),
        ("broken", "broken: [error] ZeroDivisionError: it broke"),
        ("nothing", "nothing: [error] [unavailable] this stage has no tool 'nothing'; it has "),
        ("context_list", "context_list: [error] [unavailable] this stage has no tool 'context_list'; it has "),
        ("read_file", "read_file: [error] the arguments of `read_file` break its schema:"),
    ],
)
async def test_a_seeds_call_that_a_gate_stops_leaves_a_note(tmp_path: Path, name: str, note: str):
    facts = await spawned(seeded(name), tmp_path)
    assert facts.blocks == ()
    assert facts.notes[0].startswith(note)


async def test_a_spawn_that_is_refused_leaves_nothing_in_the_journal(tmp_path: Path):
    journal = MemoryJournal()
    made = blueprint(stage(), regions=(TASK, region(FilesSeed(("../x",)), "files"), TALK))
    async with swarm_of(ScriptedProvider(), journal=journal) as swarm:
        with pytest.raises(SpawnRefused):
            await swarm.spawn(made, task="t", workdir=tmp_path)
    assert journal.runs() == []


async def test_a_checklist_makes_an_item_of_each_line_of_its_seed(tmp_path: Path):
    todo = Region("todo", kind="checklist", seed=LiteralSeed("one\n\n two \n"))
    made = blueprint(stage(), regions=(TASK, todo, TALK))
    _, events = await run_once(made, ScriptedProvider("done", purposes={"titling": "T"}), workdir=tmp_path)
    assert [(each.item_id, str(each.note)) for each in payloads(events, "ItemChanged")] == [(1, "one"), (2, "two")]


# --- again, on stage entry


async def refreshed(workdir: Path, seed: Seed, change: Any, *, required: bool = False) -> list[Any]:
    """Let *change* happen in a first stage, enter a second one, and return what refreshing came to."""

    @tool
    async def work() -> str:
        """Work."""
        change()
        return "done"

    facts = region(seed, "facts", required=required)
    made = blueprint(
        stage("one", available_tools=("work",)), stage("two", available_tools=()), regions=(TASK, facts, TALK)
    )
    provider = ScriptedProvider(call("work"), "worked", "done", purposes={"titling": "T"})
    _, events = await run_once(made, provider, workdir=workdir, tools=(work,))
    return [e.payload for e in events if e.kind == "SeedRefreshed" or getattr(e.payload, "lane", "") == "refresh"]


async def test_a_refreshed_seed_takes_the_place_of_the_old_one(tmp_path: Path):
    write_files(tmp_path, {"a": "old", "b": "same"})
    seed = FilesSeed(("a", "b"), refresh="each_stage")
    _, again, end = await refreshed(tmp_path, seed, lambda: write_files(tmp_path, {"a": "new"}))
    assert texts(again) == ["--- a ---\nnew", "--- b ---\nsame"]
    assert type(end).__name__ == "LaneCompleted"


@pytest.mark.parametrize("required", [True, False])
async def test_a_file_that_cannot_be_read_any_more_keeps_its_old_block(tmp_path: Path, required: bool):
    def change() -> None:
        (tmp_path / "b").unlink()
        (tmp_path / "a").write_text("new")

    write_files(tmp_path, {"a": "old", "b": "kept"})
    seed = FilesSeed(("a", "b"), refresh="each_stage")
    _, again, end = await refreshed(tmp_path, seed, change, required=required)
    assert texts(again) == ["--- a ---\nnew", "--- b ---\nkept"]
    assert (again.notes, type(end).__name__) == (("'b' does not exist",), "LaneCompleted")


async def test_a_refresh_that_gets_nothing_at_all_keeps_everything_and_says_why(tmp_path: Path):
    write_files(tmp_path, {"a": "kept"})
    seed = FilesSeed(("a",), refresh="each_stage")
    _, end = await refreshed(tmp_path, seed, (tmp_path / "a").unlink)
    assert (type(end).__name__, end.reason, end.error) == ("LaneDegraded", "failed", "'a' does not exist")


async def test_a_refresh_never_leaves_the_working_directory(tmp_path: Path):
    def change() -> None:
        (root / "a").unlink()
        (root / "a").symlink_to("../secret")

    root = write_files(tmp_path, {"secret": "secret", "work/a": "old"}) / "work"
    _, end = await refreshed(root, FilesSeed(("a",), refresh="each_stage"), change)
    assert "leads outside the working directory" in end.error
