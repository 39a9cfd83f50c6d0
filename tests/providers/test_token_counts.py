"""Counting a request with the model's own vocabulary."""

from __future__ import annotations

import pytest
from providers_parts import PNG, ask, assistant, block, request, result, tool, tools, user

from shoal.providers import Message, Request, Text, blob, shipped_profile
from shoal.providers._token_counts import count_locally

pytestmark = pytest.mark.anyio

SEEN = Message("user", (Text.of("a"),), blobs=(blob(PNG), blob(b"some text")))
TALK = (SEEN, assistant("b", ask("c")), result("c"))
GROWING = (
    request(),
    request(user("a")),
    request(SEEN),
    request(*TALK),
    request(*TALK, tail=Text.of("t")),
    request(*TALK, tail=Text.of("t"), system=(block("s"),)),
    request(*TALK, tail=Text.of("t"), system=(block("s"),), tools=tools(tool())),
)


async def counted(asked: Request) -> int:
    return (await count_locally(asked, shipped_profile("gpt-5.4"))).tokens


async def test_every_part_of_a_request_counts():
    counts = [await counted(asked) for asked in GROWING]
    assert counts == sorted(set(counts))


async def test_a_count_says_who_made_it_and_is_never_exact():
    count = await count_locally(request(user("a")), shipped_profile("gpt-5.4"))
    assert (count.how, count.exact) == ("tiktoken:o200k_base", False)
    assert (await count_locally(request(user("a")), shipped_profile("claude-opus-4-8"))).how == "estimate"
