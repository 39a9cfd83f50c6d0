"""A conversation with `strategy = "compact"` is really folded while its run goes on."""

from __future__ import annotations

import pytest
from runkit import NOTES, TASK, blueprint, bodies, messages, payloads, run_once, stage

from shoal.blueprints import Region
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=2, strategy="compact", compact_count=2)


async def test_the_oldest_turns_are_folded_into_one_summary():
    calls = [call("context_append", region="notes", content=f"a finding, number {n}, in some words") for n in range(6)]
    turns = [Say(calls=(each,), delay_s=1) for each in calls]
    provider = ScriptedProvider(*turns, "done", purposes={"compaction": "Findings."})
    _, events = await run_once(blueprint(stage(), regions=(TASK, NOTES, TALK)), provider)
    folded = payloads(events, "ContextCompacted")
    assert {payload.region for payload in folded} == {"conversation"}
    assert messages(bodies(provider)[-1])[0] == ("user", "Findings.")
    assert payloads(events, "EntriesEvicted") == []
