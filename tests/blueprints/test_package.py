"""What the package shows, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shoal.blueprints


def names_loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_its_names_are_sorted_and_all_there() -> None:
    names = shoal.blueprints.__all__
    capitals = [name for name in names if name.isupper()]
    types = [name for name in names if not name.isupper() and name[0].isupper()]
    functions = [name for name in names if name[0].islower()]
    assert names == sorted(capitals) + sorted(types) + sorted(functions)
    assert [getattr(shoal.blueprints, name) for name in names]
    assert dir(shoal.blueprints) == sorted(names)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        shoal.blueprints.lod  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_brings_no_parser_no_client_and_no_validator() -> None:
    loaded = names_loaded_by("import shoal.blueprints")
    unwanted = {"tomli", "tomlkit", "difflib", "json", "pydantic", "httpx", "msgspec", "anyio", "asyncio"}
    assert loaded.isdisjoint(unwanted)


def test_loading_a_blueprint_brings_the_parser_and_nothing_heavy() -> None:
    loaded = names_loaded_by("import shoal.blueprints; shoal.blueprints.loads('[agent]')")
    assert "tomli" in loaded
    assert loaded.isdisjoint({"tomlkit", "pydantic", "httpx", "msgspec", "anyio", "asyncio"})
