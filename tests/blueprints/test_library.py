"""Names and paths become places; nothing in a working directory takes a bundled blueprint's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.blueprints import _library, library, load, resolve
from shoal.errors import BlueprintInvalid

GOOD = 'agent.name = "trial"\n'


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two, and a working directory beside it."""
    for name in ("digest", "coder"):
        (tmp_path / "library" / name).mkdir(parents=True)
        (tmp_path / "library" / name / "blueprint.toml").write_text(GOOD)
    (tmp_path / "library" / "notes").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(_library, "_LIBRARY", tmp_path / "library")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "library"


def test_the_library_has_the_folders_with_a_blueprint_by_name(bundled: Path) -> None:
    assert dict(library()) == {"coder": bundled / "coder", "digest": bundled / "digest"}


def test_every_bundled_blueprint_loads() -> None:
    assert [load(folder).name for folder in library().values()] == list(library())


def test_a_missing_library_is_an_empty_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_library, "_LIBRARY", tmp_path / "nothing")
    assert dict(library()) == {}


def test_a_name_of_the_library_wins_over_a_folder_of_that_name(bundled: Path) -> None:
    Path("digest").mkdir()
    assert resolve("digest") == bundled / "digest"
    assert resolve("./digest") == Path("digest").resolve()


def test_a_path_is_a_folder_or_a_file(bundled: Path) -> None:
    Path("mine").mkdir()
    Path("mine/blueprint.toml").write_text(GOOD)
    assert resolve("mine") == Path.cwd() / "mine"
    assert resolve(Path("mine/blueprint.toml")) == Path.cwd() / "mine" / "blueprint.toml"


def test_a_linked_folder_is_resolved(bundled: Path) -> None:
    Path("mine").mkdir()
    Path("link").symlink_to("mine")
    assert resolve("link") == Path.cwd() / "mine"


def test_an_unknown_name_gives_the_nearest_and_all(bundled: Path) -> None:
    with pytest.raises(
        BlueprintInvalid, match=r"'digset' \(did you mean `digest`\?\); the library has `coder`, `digest`"
    ):
        resolve("digset")


@pytest.mark.parametrize("path", ["./nothing", "some/where", "mine.toml", "x" * 300 + ".toml"])
def test_a_path_to_nothing_is_said_to_be_one(path: str, bundled: Path) -> None:
    with pytest.raises(BlueprintInvalid, match="check the path") as refused:
        resolve(path)
    assert [one.id for one in refused.value.findings] == ["blueprint-missing"]


@pytest.mark.parametrize("name", ["", "x" * 300, "nul\0byte"])
def test_a_name_that_no_file_can_have_is_unknown(name: str, bundled: Path) -> None:
    with pytest.raises(BlueprintInvalid, match="there is no blueprint"):
        resolve(name)


def test_the_prefix_means_inside_the_base(bundled: Path, tmp_path: Path) -> None:
    (tmp_path / "base" / "workers" / "reader").mkdir(parents=True)
    assert resolve("blueprint:workers/reader", base=tmp_path / "base") == tmp_path / "base" / "workers" / "reader"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("blueprint:../other", "leaves the blueprint's folder"),
        ("blueprint:/etc", "leaves the blueprint's folder"),
        ("blueprint:", "leaves the blueprint's folder"),
        ("blueprint:out", "leaves the blueprint's folder"),
        ("blueprint:nothing", "there is no blueprint at"),
    ],
)
def test_what_is_not_inside_the_base_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "out").symlink_to("../other")
    with pytest.raises(BlueprintInvalid, match=says):
        resolve(text, base=tmp_path / "base")


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BlueprintInvalid):
        resolve("blueprint:loop", base=tmp_path)


def test_the_prefix_needs_a_base() -> None:
    with pytest.raises(BlueprintInvalid, match="give `base`"):
        resolve("blueprint:x")
