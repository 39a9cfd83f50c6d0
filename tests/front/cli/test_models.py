"""`shoal models`: what is known, and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import Shell

from shoal.testing import wire

MODEL = "claude-opus-4-8"


def test_every_model_that_ships_is_listed_with_limits_and_prices(shell: Shell):
    head, *rows = shell("models").out.splitlines()
    assert head.split()[:7] == ["model", "context", "reply", "in", "out", "cached", "written"]
    [row] = [row for row in rows if row.startswith(MODEL)]
    assert row.split()[1:8] == ["1.0M", "128k", "5", "25", "0.50", "6.25", "markers"]
    assert "2026-11-30" in row


def test_what_is_unknown_is_said_to_be(shell: Shell):
    Path("shoal.toml").write_text("[models.mine]\ncontext = 9000\n")
    [row] = [row for row in shell("models").out.splitlines() if row.startswith("mine")]
    assert row.split()[1:6] == ["9000", "4096", "?", "?", "?"]


def test_each_fact_of_a_model_has_its_source(shell: Shell):
    Path("shoal.toml").write_text(f'[models."{MODEL}"]\ncontext = 9000\n')
    said = shell("models", MODEL).out
    [context] = [row for row in said.splitlines() if row.startswith("context")]
    assert context.split()[:2] == ["context", "9000"]
    assert context.endswith("shoal.toml")
    assert "price" in said
    assert "input 5, output 25" in said


def test_for_programs_prices_are_decimals_in_strings_and_unknown_is_null(shell: Shell):
    [known] = shell("models", "claude-haiku-5-5", "--json").json
    assert known["price"]["long_factor"] == "5"
    assert (known["price"]["input"], known["context"], known["sources"]["context"][:13]) == (
        "0.10",
        1_000_000,
        "`models.toml`",
    )
    [unknown] = shell("models", "unheard-of", "--json").json
    assert (unknown["price"], unknown["thinking"]) == (None, None)
    assert set(unknown["sources"].values()) == {"the default for an unknown model"}


def test_a_model_that_nobody_knows_is_shown_with_its_defaults(shell: Shell):
    rows = shell("models", "unheard-of").out.splitlines()
    assert [row.split()[1] for row in rows if row.startswith(("price", "append_only", "efforts"))] == [
        "no",
        "unknown",
        "unknown",
    ]


@pytest.mark.sockets
def test_a_provider_may_be_asked_what_it_knows(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    settings = wire.Settings(models={MODEL: {"like": MODEL, "window": 123_456, "max_output": 1000}})
    with wire.serve_in_thread(wire.Script(), settings) as server:
        monkeypatch.setenv("SHOAL_PROVIDER", "anthropic")
        monkeypatch.setenv("SHOAL_API_KEY", "k")
        monkeypatch.setenv("SHOAL_BASE_URL", server.base_url)
        [known] = shell("models", MODEL, "--ask", "--json").json
    assert (known["context"], known["sources"]["context"]) == (123_456, "the vendor's API")
    assert known["sources"]["price"].startswith("`models.toml`")


def test_the_offline_provider_says_what_it_is(shell: Shell):
    [known] = shell("models", "any", "--ask", "--json").json
    assert (known["context"], known["price"]["input"]) == (200_000, "0")


def test_asking_needs_a_model(shell: Shell):
    said = shell("models", "--ask")
    assert (said.status, "name it" in said.err) == (2, True)
