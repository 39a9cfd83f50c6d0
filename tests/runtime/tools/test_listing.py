"""`list_dir`: what a folder shows, what it leaves out, and names that could be misread."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolkit import called, read

from shoal.runtime.tools._listing import list_folder, shown_name

pytestmark = pytest.mark.anyio


def tree(root: Path, *files: str, **texts: str) -> Path:
    """Make *files* below *root*; one that ends in `/` is a folder."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text("text")
    return root.resolve()


def ignoring(root: Path, **rules: str) -> None:
    """Write a `.gitignore` into each folder that *rules* names; `_` is *root* itself."""
    for folder, lines in rules.items():
        (root / folder.replace("_", ".") / ".gitignore").write_text(lines)


def below(root: Path, path: str = ".", **more: object) -> list[str]:
    """Return all files below *path*."""
    return list(list_folder(root, path, recursive=True, most=1000, hidden=None, **more).names)  # type: ignore[arg-type]


def level(root: Path, path: str = ".") -> list[str]:
    """Return what *path* holds."""
    return list(list_folder(root, path, recursive=False, most=1000, hidden=None).names)


# --- one level


async def test_a_folder_is_listed_in_order_with_a_slash_behind_folders(tmp_path: Path):
    tree(tmp_path, "b.txt", "a/x", "A", "c/")
    assert read(await called("list_dir", tmp_path)) == "A\na/\nb.txt\nc/"


async def test_one_level_shows_hidden_and_ignored_names_too(tmp_path: Path):
    tree(tmp_path, ".git/x", "a.log")
    ignoring(tmp_path, _="*.log")
    assert level(tmp_path) == [".git/", ".gitignore", "a.log"]


async def test_an_empty_folder_says_so(tmp_path: Path):
    assert read(await called("list_dir", tmp_path)).strip() == "[the folder is empty]"
    assert read(await called("list_dir", tmp_path, recursive=True)).strip() == "[there are no files]"


async def test_a_folder_below_is_listed_by_its_path(tmp_path: Path):
    tree(tmp_path, "a/b/c")
    assert read(await called("list_dir", tmp_path, path="a/b")) == "c"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("file", "'file' is not a folder; read it with `read_file`"),
        ("gone", "'gone' does not exist"),
        ("..", "'..' leads outside the folder 'work'; name a path inside it"),
        ("notes", "'notes' is a region, not a file. It is already in this prompt, under \"## notes\"."),
    ],
)
async def test_what_cannot_be_listed_says_why(tmp_path: Path, path: str, said: str):
    tree(tmp_path / "work", "file")
    result = await called("list_dir", tmp_path / "work", path=path, given={"regions": ("notes",)})
    assert (read(result), result.is_error) == (f"[error] {said}", True)


async def test_what_is_over_the_cap_is_counted(tmp_path: Path):
    tree(tmp_path, *[f"f{number:02}" for number in range(12)])
    said = read(await called("list_dir", tmp_path, given={"list_entries": 10}))
    assert said.splitlines()[:10] == [f"f{number:02}" for number in range(10)]
    assert said.splitlines()[10:] == ["", "[2 more are left out; list a folder below]"]


async def test_a_blank_line_stands_between_the_names_and_what_is_said_of_them(tmp_path: Path):
    tree(tmp_path, "a", os.fsdecode(b"\xff"), "[9 more are left out]")
    said = read(await called("list_dir", tmp_path))
    assert said == "[9 more are left out]\na\n\n[1 names are not UTF-8 and cannot be given to a tool]"


# --- all files below


def test_all_files_below_are_listed_by_their_paths(tmp_path: Path):
    root = tree(tmp_path, "b/c/d.txt", "a.txt", "b/a.txt", "e/")
    assert below(root) == ["a.txt", "b/a.txt", "b/c/d.txt"]


@pytest.mark.parametrize("path", ["b", "b/", "./b", "b/c/.."])
def test_a_path_from_a_listing_can_be_given_to_a_tool(tmp_path: Path, path: str):
    root = tree(tmp_path, "b/c/d.txt")
    assert [(root / name).read_text() for name in below(root, path)] == ["text"]


def test_an_absolute_path_is_listed_by_absolute_paths(tmp_path: Path):
    root = tree(tmp_path, "b/c")
    assert below(root, str(root / "b")) == [str(root / "b" / "c")]


def test_hidden_files_and_folders_are_left_out(tmp_path: Path):
    assert below(tree(tmp_path, ".env", ".git/config", "a/.hidden/b", "a/b")) == ["a/b"]


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_the_folder_of_reports_is_left_out(tmp_path: Path, recursive: bool, linked: bool):
    root = tree(tmp_path / "work", "out/report.md", "a/out/b")
    (tmp_path / "link").symlink_to("work")
    hidden = (tmp_path / "link" if linked else root) / "out"
    names = list_folder(root, ".", recursive=recursive, most=9, hidden=hidden).names
    assert names == (("a/out/b",) if recursive else ("a/",))


def test_what_is_no_file_is_left_out(tmp_path: Path):
    root = tree(tmp_path, "a")
    os.mkfifo(root / "pipe")
    assert (below(root), level(root)) == (["a"], ["a", "pipe"])


def test_a_file_that_goes_while_we_look_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = tree(tmp_path, "a", "b")
    real = os.stat

    def vanish(path: object, *args: object, **more: object) -> os.stat_result:
        if path == "a":
            raise FileNotFoundError
        return real(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", vanish)
    assert below(root) == ["b"]


# --- links


def test_linked_folders_are_never_followed(tmp_path: Path):
    root = tree(tmp_path / "work", "a/b")
    tree(tmp_path / "beside", "secret")
    (root / "out").symlink_to("../beside")
    (root / "in").symlink_to("a")
    (root / "loop").symlink_to(".")
    assert below(root) == ["a/b"]
    assert level(root) == ["a/", "in", "loop", "out"]


def test_linked_files_are_listed_where_they_lead_to_a_file_inside(tmp_path: Path):
    root = tree(tmp_path / "work", "a")
    (tmp_path / "secret").write_text("secret")
    for name, target in {"good": "a", "bad": "../secret", "dangling": "gone", "loop": "loop"}.items():
        (root / name).symlink_to(target)
    assert below(root) == ["a", "good"]


# --- what is ignored


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("", ["a.log", "b/a.log", "b/c.txt", "build/x"]),
        ("*.log", ["b/c.txt", "build/x"]),
        ("/a.log", ["b/a.log", "b/c.txt", "build/x"]),
        ("build/", ["a.log", "b/a.log", "b/c.txt"]),
        ("*.log\n!b/a.log", ["b/a.log", "b/c.txt", "build/x"]),
        ("build/\n!build/x", ["a.log", "b/a.log", "b/c.txt"]),
        ("build/*\n!build/x", ["a.log", "b/a.log", "b/c.txt", "build/x"]),
        ("# *.log\n\n\\#x", ["a.log", "b/a.log", "b/c.txt", "build/x"]),
        ("b", ["a.log", "build/x"]),
        ("b/*.txt\r\n", ["a.log", "b/a.log", "build/x"]),
        ("[z-a]\n!\nx\\\n*.log", ["b/c.txt", "build/x"]),
        ("*", []),
    ],
)
def test_files_that_git_ignores_are_left_out(tmp_path: Path, rules: str, left: list[str]):
    root = tree(tmp_path, "a.log", "b/a.log", "b/c.txt", "build/x")
    ignoring(root, _=rules)
    assert below(root) == left


def test_the_nearest_rule_that_has_an_opinion_decides(tmp_path: Path):
    root = tree(tmp_path, "a.log", "b/a.log", "b/c/a.log", "b/a.txt")
    ignoring(root, _="*.log")
    ignoring(root / "b", _="!*.log\n*.txt")
    ignoring(root / "b" / "c", _="a.*")
    assert below(root) == ["b/a.log"]


def test_rules_count_for_a_folder_that_is_listed_below_them(tmp_path: Path):
    root = tree(tmp_path, "b/a.log", "b/a.txt", "b/c/a.log")
    ignoring(root, _="*.log\n/b/a.txt")
    assert (below(root, "b"), below(root, "b/c")) == ([], [])


@pytest.mark.parametrize("path", ["build", "build/deep"])
def test_an_ignored_folder_that_is_asked_for_by_name_is_listed(tmp_path: Path, path: str):
    root = tree(tmp_path, "build/deep/x", "build/deep/y.log")
    ignoring(root, _="build/\n*.log")
    assert [Path(name).name for name in below(root, path)] == ["x", "y.log"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "binary"])
def test_rules_that_are_no_plain_file_count_as_none(tmp_path: Path, kind: str):
    root = tree(tmp_path, "a.log", "rules")
    (root / "rules").write_text("*.log")
    match kind:
        case "link":
            (root / ".gitignore").symlink_to("rules")
        case "pipe":
            os.mkfifo(root / ".gitignore")
        case "folder":
            (root / ".gitignore").mkdir()
        case _:
            (root / ".gitignore").write_bytes(b"\xff\xfe\0*")
    assert below(root) == ["a.log", "rules"]


def test_rules_outside_the_working_directory_do_not_count(tmp_path: Path):
    root = tree(tmp_path / "work", "a.log")
    ignoring(tmp_path, _="*")
    assert below(root) == ["a.log"]


def test_a_linked_folder_above_brings_no_rules(tmp_path: Path):
    """The folder is known by where it really is, not by the way that led there."""
    root = tree(tmp_path, "a/b/x", "c/")
    ignoring(root, c="*")
    (root / "c" / "link").symlink_to("../a")
    assert [Path(name).name for name in below(root, "c/link/b")] == ["x"]


# --- folders that cannot be read


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of ours, looked at by a user who is not root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    (folder / "locked").chmod(0o700)
    shutil.rmtree(folder)


def test_folders_that_cannot_be_read_are_counted(nobody: Path):
    user = os.geteuid()
    os.seteuid(os.getuid())
    tree(nobody, "a", "locked/b")
    (nobody / "locked").chmod(0)
    os.seteuid(user)
    listing = list_folder(nobody, ".", recursive=True, most=9, hidden=None)
    assert (listing.names, listing.unreadable) == (("a",), 1)


def test_a_folder_below_one_that_cannot_be_read_is_listed_without_its_rules(nobody: Path):
    user = os.geteuid()
    os.seteuid(os.getuid())
    tree(nobody, "locked/sub/a.log")
    ignoring(nobody, locked="*.log")
    (nobody / "locked").chmod(0o111)
    os.seteuid(user)
    assert below(nobody, "locked/sub") == ["locked/sub/a.log"]


async def test_a_listing_says_that_folders_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tree(tmp_path, "a", "locked/b")
    real = os.open

    def refuse(path: object, *args: object, **more: object) -> int:
        if path == "locked":
            raise PermissionError
        return real(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    assert read(await called("list_dir", tmp_path, recursive=True)) == "a\n\n[1 folders cannot be read]"


# --- names


@pytest.mark.parametrize("name", ["a", "with space", "é", "文", "[id].tsx", "-rf", "a'b", 'a"b', "e\u0301", "😀"])
def test_a_plain_name_is_shown_as_it_is(name: str):
    assert shown_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\n",
        "\n",
        " ",
        " a",
        "a ",
        "tab\t",
        '"quoted"',
        "back\\slash",
        "\x7f",
        "\x1b[2J",
        "line\u2028",
        "\u202egpj.exe",
    ],
)
def test_a_name_that_could_be_misread_is_shown_as_json_on_one_line(name: str):
    shown = shown_name(name)
    assert shown is not None
    assert json.loads(shown) == name
    assert shown.isprintable()


def test_a_name_that_is_no_text_is_not_shown():
    assert shown_name("\udcff") is None


@given(name=st.text(min_size=1))
def test_any_name_is_shown_so_that_it_can_be_read_back(name: str):
    shown = shown_name(name)
    if shown is None:
        assert any("\ud800" <= letter <= "\udfff" for letter in name)
    else:
        assert (json.loads(shown) if shown.startswith('"') else shown) == name
        assert shown.strip() == shown != ""
        assert len(shown.splitlines()) == 1


def test_a_listing_is_in_the_order_of_the_names(tmp_path: Path):
    names = ["a\nb", "a", "B", "é", "z"]
    root = tree(tmp_path, *names)
    assert below(root) == ["B", "a", '"a\\nb"', "z", "é"]


def test_folders_are_listed_with_their_mode_untouched(tmp_path: Path):
    root = tree(tmp_path, "a/b")
    (root / "a").chmod(0o750)
    below(root)
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o750
