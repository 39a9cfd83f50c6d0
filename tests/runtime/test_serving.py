"""Who serves a stage: its own choice, the swarm's first provider, one that stands in, or nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.blueprints import ModelChoice, ModelSettings
from shoal.errors import ConfigInvalid, ProviderSetup, SpawnRefused
from shoal.providers import offline
from shoal.runtime._serving import Servants
from shoal.testing import ScriptedProvider


def provider(name: str, default: str | None = "default") -> ScriptedProvider:
    made = ScriptedProvider(name=name)
    made.default_model = default  # type: ignore[assignment]
    return made


def servants(*providers: Any) -> Servants:
    return Servants(providers, lambda: 0.0)


def choices(*models: str) -> ModelSettings:
    """Return settings that name *models*, each as `provider` or `provider:model`."""
    parted = [model.partition(":") for model in models]
    return ModelSettings(tuple(ModelChoice(name, model or None) for name, _, model in parted))


def labels(serving: Any) -> list[str]:
    return [each.label for each in serving]


BOTH = (provider("one"), provider("two"))


def test_the_first_provider_serves_who_names_nobody():
    assert labels(servants(*BOTH).of(None, None)) == ["one:default"]
    assert labels(servants(*BOTH).of(ModelSettings(timeout_s=3), None)) == ["one:default"]


def test_a_stages_choices_stand_in_its_order():
    found = servants(*BOTH).of(choices("two:big", "one", "two:small"), None)
    assert labels(found) == ["two:big", "one:default", "two:small"]


def test_what_is_named_twice_stands_once():
    assert labels(servants(*BOTH).of(choices("two", "two:default"), None)) == ["two:default"]


def test_choices_that_nobody_here_serves_are_passed_over():
    assert labels(servants(*BOTH).of(choices("three:x", "two:y"), None)) == ["two:y"]


@pytest.mark.parametrize(
    ("override", "label"), [("two", "two:default"), ("two:m", "two:m"), ("one:llama3:8b", "one:llama3:8b")]
)
def test_what_the_user_says_wins_over_every_choice(override: str, label: str):
    assert labels(servants(*BOTH).of(choices("one:x"), override)) == [label]


@pytest.mark.parametrize(
    ("default", "order"),
    [
        ("two", ["two:b", "two:default", "one:a", "one:c"]),
        ("two:default", ["two:default", "two:b", "one:a", "one:c"]),
        ("one:c", ["one:c", "one:a", "two:b", "two:default"]),
        ("one:unlisted", ["one:a", "one:c", "two:b", "two:default"]),
    ],
)
def test_what_the_user_prefers_leads_a_list_that_has_it(default: str, order: list[str]):
    found = servants(*BOTH).of(choices("one:a", "two:b", "one:c", "two"), None, default)
    assert labels(found) == order


def test_a_list_that_does_not_let_it_keeps_its_order():
    fixed = replace(choices("one:a", "two:b"), allow_user_default=False)
    assert labels(servants(*BOTH).of(fixed, None, "two")) == ["one:a", "two:b"]


def test_what_the_user_prefers_serves_who_names_nobody():
    assert labels(servants(*BOTH).of(None, None, "two:big")) == ["two:big"]
    assert labels(servants(*BOTH).of(ModelSettings(), None, "two")) == ["two:default"]
    assert labels(servants(*BOTH).of(ModelSettings(allow_user_default=False), None, "two")) == ["one:default"]


def test_a_preferred_provider_that_is_not_here_moves_nothing():
    assert labels(servants(*BOTH).of(None, None, "three:m")) == ["one:default"]
    listed = choices("anthropic:claude", "openai:gpt")
    assert labels(servants(offline()).of(listed, None, "openai")) == ["offline:claude", "offline:gpt"]


def test_nobody_stands_in_for_what_the_user_asks_for():
    with pytest.raises(SpawnRefused, match="no provider here serves gpt-5:its default; this swarm has offline"):
        servants(offline()).of(None, "gpt-5")


def test_what_the_user_asks_for_wins_over_what_he_prefers():
    assert labels(servants(*BOTH).of(choices("one:a", "two:b"), "one:x", "two")) == ["one:x"]


def test_a_preference_for_a_provider_that_is_not_here_is_refused_where_somebody_gives_it():
    servants(*BOTH).check_default("two:whatever")
    with pytest.raises(ConfigInvalid, match="`default_model` is 'three:m', and this swarm has `one`, `two`"):
        servants(*BOTH).check_default("three:m")


def test_where_nobody_serves_it_is_said_what_was_tried():
    with pytest.raises(SpawnRefused, match="serves three:its default, four:m; this swarm has one, two"):
        servants(*BOTH).of(choices("three", "four:m"), None)
    with pytest.raises(SpawnRefused, match="serves five:its default"):
        servants(*BOTH).of(None, "five")


def test_a_provider_that_stands_in_serves_what_no_other_does():
    found = servants(provider("one"), offline()).of(choices("anthropic:claude", "one:m"), None)
    assert [each.provider.name for each in found] == ["offline", "one"]
    assert found[0].model == "claude"


def test_a_provider_without_a_default_needs_a_model():
    with pytest.raises(SpawnRefused, match="'one' has no default model; name one as 'one:MODEL'"):
        servants(provider("one", None)).of(None, None)
    assert labels(servants(provider("one", None)).of(choices("one:m"), None)) == ["one:m"]


def test_who_serves_a_model_is_the_same_object_every_time():
    served = servants(*BOTH)
    assert served.of(None, None)[0] is served.of(choices("one:default"), None)[0]


@pytest.mark.parametrize(("given", "named"), [((), "none"), ((provider("x"), provider("x")), "'x', 'x'")])
def test_providers_need_a_name_each(given: tuple[ScriptedProvider, ...], named: str):
    with pytest.raises(ConfigInvalid, match=f"needs providers with a name each, and was given {named}"):
        servants(*given)


def test_providers_stand_in_the_order_in_which_they_were_given():
    served = servants(*BOTH)
    assert (served.providers, repr(served)) == (BOTH, "<Servants one, two>")


def test_a_provider_that_is_reconsidered_may_be_asked_at_once():
    served = servants(*BOTH)
    for _ in range(3):
        served.breaker("one").record(ProviderSetup("no credits"))
    served.reconsider("one")
    served.reconsider("gone")
    assert served.breaker("one").allow()


def test_a_swarm_is_well_while_one_provider_can_be_asked():
    served = servants(*BOTH)
    for name in ("one", "two"):
        assert served.healthy
        for _ in range(3):
            served.breaker(name).record(ProviderSetup("no credits"))
    assert not served.healthy
