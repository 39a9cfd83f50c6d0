"""The hint that several tools can be called in one turn: a stage's word wins over its blueprint's."""

from __future__ import annotations

import pytest
from runkit import blueprint, bodies, messages, run_once, stage, system_text

from shoal.blueprints import Nudge
from shoal.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

HINT = "You can call several tools in one turn, and they run at the same time"


@pytest.mark.parametrize(
    ("whole", "own", "shown"),
    [
        (None, None, False),
        (True, None, True),
        (False, None, False),
        (True, False, False),
        (False, True, True),
        (None, True, True),
    ],
)
async def test_the_hint_is_shown_where_the_nearest_word_asks_for_it(whole: bool | None, own: bool | None, shown: bool):
    provider = ScriptedProvider("done", purposes={"titling": "T"})
    made = blueprint(
        stage(batch_tool_hint=own, system_prompt="Do it.", nudge=Nudge(enabled=False)), batch_tool_hint=whole
    )
    await run_once(made, provider)
    text = system_text(bodies(provider)[0])
    assert (HINT in text) is shown
    assert "Do it." in text


async def test_a_stage_without_tools_is_not_told_how_to_call_them():
    provider = ScriptedProvider("done", purposes={"titling": "T"})
    await run_once(blueprint(stage(available_tools=(), system_prompt="Do it."), batch_tool_hint=True), provider)
    assert HINT not in str(bodies(provider)[0])


async def test_where_the_prompt_is_a_nudge_the_hint_stands_in_front_of_it():
    provider = ScriptedProvider("done", purposes={"titling": "T"})
    made = blueprint(stage(batch_tool_hint=True, system_prompt="Do it.", prompt_as="nudge", nudge=Nudge(enabled=False)))
    await run_once(made, provider)
    said = str(messages(bodies(provider)[0]))
    assert HINT in said
    assert said.index(HINT) < said.index("Do it.")
