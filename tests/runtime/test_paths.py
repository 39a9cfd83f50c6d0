"""Files stay inside their folder, whatever the path says and whatever changes while it is opened."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.runtime._paths import PathRefused, open_inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A working folder with a file and a folder in it, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret").write_text("secret")
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "sub" / "b.txt").write_text("b")
    return root.resolve()


def text(root: Path, path: str) -> str:
    with os.fdopen(open_inside(root, path)) as file:
        return file.read()


def refused(root: Path, path: str, *, directory: bool = False) -> PathRefused:
    before = open_files()
    with pytest.raises(PathRefused) as caught:
        open_inside(root, path, directory=directory)
    assert open_files() == before
    return caught.value


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir() if file.exists()}


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub/../a.txt", "sub//b.txt", "../work/a.txt", "sub/./b.txt"])
def test_a_path_that_ends_inside_is_opened(root: Path, path: str):
    assert text(root, path) in ("a", "b")


def test_an_absolute_path_inside_is_opened(root: Path):
    assert text(root, str(root / "sub" / "b.txt")) == "b"


@pytest.mark.parametrize("path", ["sub", ".", "", "./sub/"])
def test_a_folder_is_opened_where_one_is_asked_for(root: Path, path: str):
    descriptor = open_inside(root, path, directory=True)
    assert stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.close(descriptor)


@pytest.mark.parametrize(
    "path",
    ["../secret", "sub/../../secret", "/etc/passwd", "..", "../workshop", "/", "../missing", "/proc/self/environ"],
)
def test_a_path_that_leads_outside_is_refused(root: Path, path: str):
    error = refused(root, path)
    assert error.why == "outside"
    assert str(error) == f"{path!r} leads outside the folder 'work'; name a path inside it"


def test_a_folder_whose_name_begins_like_the_root_is_outside(root: Path):
    (root.parent / "workshop").mkdir()
    assert refused(root, "../workshop", directory=True).why == "outside"


# --- links


def test_a_link_that_stays_inside_is_followed(root: Path):
    (root / "link").symlink_to("sub/b.txt")
    (root / "folder").symlink_to("sub")
    assert (text(root, "link"), text(root, "folder/b.txt")) == ("b", "b")


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "../gone"])
def test_a_link_that_leads_outside_is_refused(root: Path, target: str):
    (root / "link").symlink_to(target)
    assert refused(root, "link").why == "outside"


@pytest.mark.parametrize("path", ["folder/secret", "folder", "folder/../secret"])
def test_a_linked_folder_outside_is_refused(root: Path, path: str):
    (root / "folder").symlink_to("../beside")
    assert refused(root, path).why == "outside"


def test_a_link_to_nothing_inside_is_missing(root: Path):
    (root / "link").symlink_to("gone")
    assert refused(root, "link").why == "missing"


def test_a_loop_of_links_is_refused(root: Path):
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    error = refused(root, "one")
    assert (error.why, "loop of links" in str(error)) == ("loop", True)


# --- what changes meanwhile


@pytest.fixture
def swap(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Put a link to the value in the place of the key, between the check of a path and its opening."""
    swaps: dict[str, Path] = {}
    real_open = os.open

    def open_after_swap(path: object, flags: int, *args: object, **more: object) -> int:
        for name, target in swaps.items():
            (root / name).rename(root / f"{name}.was")
            (root / name).symlink_to(target)
        swaps.clear()
        return real_open(path, flags, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_after_swap)
    yield swaps
    assert not swaps


def test_a_file_that_becomes_a_link_after_the_check_is_not_followed(root: Path, swap: dict[str, Path]):
    swap["a.txt"] = root.parent / "secret"
    assert refused(root, "a.txt").why == "loop"


def test_a_folder_that_becomes_a_link_after_the_check_is_noticed_on_what_was_opened(root: Path, swap: dict[str, Path]):
    (root / "sub" / "secret").write_text("mine")
    swap["sub"] = root.parent / "beside"
    assert refused(root, "sub/secret").why == "outside"


def test_a_folder_that_is_listed_is_checked_on_what_was_opened_too(root: Path, swap: dict[str, Path]):
    (root / "sub" / "deep").mkdir()
    (root.parent / "beside" / "deep").mkdir()
    swap["sub"] = root.parent / "beside"
    assert refused(root, "sub/deep", directory=True).why == "outside"


def test_a_racing_swap_never_gives_away_a_secret(root: Path):
    """Swap a folder for a link as fast as the system lets us, while it is read."""
    (root / "sub" / "secret").write_text("mine")
    (root / "trap").symlink_to("../beside")
    over = threading.Event()

    def race() -> None:
        while not over.is_set():
            for one, other in (("sub", "aside"), ("trap", "sub"), ("sub", "trap"), ("aside", "sub")):
                (root / one).rename(root / other)

    thread = threading.Thread(target=race)
    thread.start()
    seen: set[str] = set()
    for _ in range(1_500):
        try:
            seen.add(text(root, "sub/secret"))
        except PathRefused as error:
            seen.add(error.why)
    over.set()
    thread.join()
    assert "secret" not in seen
    assert seen <= {"mine", "outside", "missing", "loop"}


# --- what is no file


def test_a_folder_is_no_file(root: Path):
    error = refused(root, "sub")
    assert (error.why, str(error)) == ("directory", "'sub' is a folder")


def test_a_file_is_no_folder(root: Path):
    error = refused(root, "a.txt", directory=True)
    assert (error.why, str(error)) == ("file", "'a.txt' is not a folder")


@pytest.mark.parametrize("path", ["gone", "sub/gone", "gone/deeper"])
def test_what_is_not_there_is_missing(root: Path, path: str):
    error = refused(root, path)
    assert (error.why, str(error)) == ("missing", f"{path!r} does not exist")


def test_a_path_through_a_file_is_missing(root: Path):
    assert str(refused(root, "a.txt/b")) == "'a.txt/b' does not exist: a part of it is a file"


def test_a_pipe_without_a_writer_does_not_block(root: Path):
    os.mkfifo(root / "pipe")
    assert refused(root, "pipe").why == "special"


def test_a_socket_is_no_file(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(root)  # the name of a socket may not be long
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
        assert refused(root, "s").why == "special"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make devices")
def test_a_device_is_no_file(root: Path):
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    error = refused(root, "null")
    assert (error.why, "device, pipe or socket" in str(error)) == ("special", True)


# --- names


@pytest.mark.parametrize(
    "name", ["with space", "new\nline", 'quo"te', "back\\slash", "é", "e\u0301", "\udcff", "-rf", "~", "*", "文"]
)
def test_a_file_may_have_any_name(root: Path, name: str):
    (root / name).write_text("mine")
    assert text(root, name) == "mine"


def test_two_forms_of_one_letter_are_two_names(root: Path):
    (root / "é").write_text("composed")
    assert refused(root, "e\u0301").why == "missing"


@pytest.mark.parametrize("path", ["a\0.txt", "\ud800", "x" * 300, "y/" * 3000])
def test_what_can_be_no_path_is_refused(root: Path, path: str):
    error = refused(root, path)
    assert error.why == "name"
    assert len(str(error)) < 200


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EACCES, "unreadable"),
        (errno.EPERM, "unreadable"),
        (errno.EMFILE, "unreadable"),
        (errno.ENODEV, "special"),
        (errno.EINVAL, "loop"),
    ],
)
def test_what_cannot_be_opened_says_why(root: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str):
    def fail(*_args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(PathRefused, match=r"a\.txt") as caught:
        open_inside(root, "a.txt")
    assert caught.value.why == why


def test_where_there_is_no_proc_the_path_is_resolved_again(root: Path, monkeypatch: pytest.MonkeyPatch):
    readlink = os.readlink

    def no_proc(path: str | Path) -> str:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError
        return readlink(path)

    monkeypatch.setattr(os, "readlink", no_proc)
    assert text(root, "a.txt") == "a"
