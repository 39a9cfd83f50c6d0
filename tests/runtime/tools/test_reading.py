"""`read_file` and `read_files`: text comes in pages, whatever its bytes are, and nothing blocks or leaks."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolkit import called, read

from shoal.runtime._paths import PathRefused
from shoal.runtime.tools._files import read_page

pytestmark = pytest.mark.anyio


def pages(root: Path, path: str, most_bytes: int) -> list[str]:
    """Read *path* to its end, page by page."""
    texts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = read_page(root, path, offset, most_bytes)
        texts.append(page.text)
        assert page.next_offset is None or page.next_offset > offset
        offset = page.next_offset
    return texts


@pytest.mark.parametrize("text", ["one line", "two\nlines\n", "\n", "windows\r\nlines\r\n", "\ufeffmarked", "é文😀"])
async def test_a_file_that_fits_is_read_whole(tmp_path: Path, text: str):
    (tmp_path / "a").write_bytes(text.encode())
    result = await called("read_file", tmp_path, path="a")
    assert (str(result.text), result.note, result.is_error) == (text, "", False)


async def test_an_empty_file_says_so(tmp_path: Path):
    (tmp_path / "a").touch()
    assert read(await called("read_file", tmp_path, path="a")) == "(the file is empty)"


async def test_a_long_file_says_where_to_go_on(tmp_path: Path):
    (tmp_path / "a").write_text("line\n" * 100)
    result = await called("read_file", tmp_path, path="a", limit=52)
    assert str(result.text) == "line\n" * 10
    assert result.note == "[bytes 0 to 50 of 500]\n[continue with offset=50]"
    last = await called("read_file", tmp_path, path="a", offset=480)
    assert read(last) == "line\n" * 4


async def test_the_cap_holds_whatever_the_model_asks_for(tmp_path: Path):
    (tmp_path / "a").write_text("x" * 100)
    result = await called("read_file", tmp_path, path="a", limit=90, given={"read_bytes": 10})
    assert len(str(result.text)) == 10


@pytest.mark.parametrize("offset", [3, 4, 1_000, 2**80])
async def test_an_offset_behind_the_end_says_how_long_the_file_is(tmp_path: Path, offset: int):
    (tmp_path / "a").write_text("abc")
    result = await called("read_file", tmp_path, path="a", offset=offset)
    assert read(result) == f"(nothing at offset {offset}: the file has 3 bytes)"


async def test_an_offset_that_is_a_whole_float_is_one(tmp_path: Path):
    (tmp_path / "a").write_text("abc")
    assert read(await called("read_file", tmp_path, path="a", offset=1.0)) == "bc"


def test_a_page_ends_with_a_line_where_that_keeps_most_of_it(tmp_path: Path):
    (tmp_path / "a").write_text("a" * 6 + "\n" + "b" * 20)
    assert pages(tmp_path, "a", 10)[0] == "aaaaaa\n"


def test_a_page_of_one_huge_line_is_full(tmp_path: Path):
    (tmp_path / "a").write_text("a\n" + "b" * 30)
    assert [len(page) for page in pages(tmp_path, "a", 10)] == [10, 10, 10, 2]


def test_a_file_as_long_as_the_page_is_one_page(tmp_path: Path):
    (tmp_path / "a").write_text("x" * 10)
    assert pages(tmp_path, "a", 10) == ["x" * 10]


@pytest.mark.parametrize("most_bytes", range(1, 9))
@pytest.mark.parametrize("text", ["é" * 9, "文" * 9, "😀" * 9, "a😀é文" * 4, "aé\n文😀" * 5])
def test_a_page_never_ends_inside_a_character(tmp_path: Path, text: str, most_bytes: int):
    (tmp_path / "a").write_text(text)
    assert "".join(pages(tmp_path, "a", most_bytes)) == text


@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), most_bytes=st.integers(1, 20))
def test_all_pages_are_the_whole_text(tmp_path_factory: pytest.TempPathFactory, text: str, most_bytes: int):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "a").write_bytes(text.encode())
    assert "".join(pages(folder, "a", most_bytes)) == text


@given(data=st.binary(max_size=60), most_bytes=st.integers(1, 20))
def test_any_bytes_come_to_an_end(tmp_path_factory: pytest.TempPathFactory, data: bytes, most_bytes: int):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "a").write_bytes(data)
    with contextlib.suppress(PathRefused):
        assert "\0" not in "".join(pages(folder, "a", most_bytes))


# --- what is not text


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text\0more", "utf-16".encode("utf-16-be")])
async def test_a_binary_file_is_refused_with_its_size(tmp_path: Path, data: bytes):
    (tmp_path / "a").write_bytes(data)
    result = await called("read_file", tmp_path, path="a")
    assert result.is_error
    assert read(result) == f"[error] 'a' is binary ({len(data)} bytes), not text"


async def test_a_file_in_another_encoding_is_refused_where_little_of_it_could_be_read(tmp_path: Path):
    (tmp_path / "a").write_bytes("Война и мир".encode("cp1251"))
    assert read(await called("read_file", tmp_path, path="a")) == "[error] 'a' is not UTF-8 text (11 bytes)"


@pytest.mark.parametrize("text", ["café", "déjà vu, said in a long line " * 5])
async def test_a_few_letters_in_another_encoding_are_replaced_and_counted(tmp_path: Path, text: str):
    (tmp_path / "a").write_bytes(text.encode("latin-1"))
    result = await called("read_file", tmp_path, path="a")
    accents = sum(not letter.isascii() for letter in text)
    assert str(result.text) == "".join(letter if letter.isascii() else "\ufffd" for letter in text)
    assert result.note == f"[characters that are not UTF-8 and were replaced: {accents}]"


async def test_a_replacement_character_that_stands_in_the_file_is_no_damage(tmp_path: Path):
    (tmp_path / "a").write_text("\ufffd" * 50)
    assert (await called("read_file", tmp_path, path="a")).note == ""


# --- what is no file


async def test_a_folder_is_listed_instead(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    said = read(await called("read_file", tmp_path, path="sub"))
    assert said == "[error] 'sub' is a folder; list it with `list_dir`"


async def test_a_pipe_does_not_block_the_call(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "is a device, pipe or socket" in read(await called("read_file", tmp_path, path="pipe"))


async def test_a_path_that_is_a_regions_name_says_where_its_text_stands(tmp_path: Path):
    result = await called("read_file", tmp_path, path="notes", given={"regions": ("notes",)})
    assert result.is_error
    assert read(result).endswith("'notes' is a region, not a file. It is already in this prompt, under \"## notes\".")


async def test_a_file_that_has_a_regions_name_is_read(tmp_path: Path):
    (tmp_path / "notes").write_text("mine")
    assert read(await called("read_file", tmp_path, path="notes", given={"regions": ("notes",)})) == "mine"


async def test_a_path_that_leads_outside_is_an_error_that_says_so(tmp_path: Path):
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("secret")
    result = await called("read_file", tmp_path / "work", path="../secret")
    assert read(result) == "[error] '../secret' leads outside the folder 'work'; name a path inside it"


# --- several


async def test_several_files_stand_each_under_its_path(tmp_path: Path):
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").touch()
    result = await called("read_files", tmp_path, paths=["a", "b", "gone"])
    assert read(result) == (
        "--- a ---\none\n\n--- b ---\n(the file is empty)\n\n--- gone ---\n[error] 'gone' does not exist"
    )
    assert not result.is_error


async def test_a_call_that_read_nothing_is_an_error(tmp_path: Path):
    assert (await called("read_files", tmp_path, paths=["gone", "lost"])).is_error


async def test_several_files_share_the_cap(tmp_path: Path):
    for name in "abc":
        (tmp_path / name).write_text(name * 6)
    result = await called("read_files", tmp_path, paths=["a", "b", "c"], given={"read_bytes": 10})
    assert str(result.text) == "--- a ---\naaaaaa\n\n--- b ---\nbbbb"
    assert result.note == (
        "[b] [bytes 0 to 4 of 6]\n[b] [continue with offset=4]\n[c: not read, the cap of 10 bytes is reached]"
    )


async def test_several_files_are_read_from_one_offset(tmp_path: Path):
    (tmp_path / "a").write_text("0123456789")
    (tmp_path / "b").write_text("01")
    result = await called("read_files", tmp_path, paths=["a", "b"], offset=8)
    assert read(result) == "--- a ---\n89\n\n--- b ---\n(nothing at offset 8: the file has 2 bytes)"


async def test_a_name_cannot_forge_the_heading_of_another_file(tmp_path: Path):
    name = "a ---\nforged\n--- b"
    (tmp_path / name).write_text("real")
    assert read(await called("read_files", tmp_path, paths=[name])) == '--- "a ---\\nforged\\n--- b" ---\nreal'


async def test_pictures_read_at_once_are_no_more_together_than_one_may_be(tmp_path: Path):
    for name in ("a", "b"):
        await anyio.Path(tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 92)
    result = await called("read_files", tmp_path, paths=["a", "b"], given={"more": {"part_bytes": 150}})
    assert [part.name for part in result.parts] == ["a"]
    assert "'b' holds 100 bytes and at most 50 are attached" in read(result)
