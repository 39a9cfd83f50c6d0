"""Anthropic's own client takes our server for Anthropic's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.testing import wire

anthropic = pytest.importorskip("anthropic", reason="the dependency group `wire` is not installed")

pytestmark = [pytest.mark.sockets, pytest.mark.wall_limit(300)]  # the official clients take long to import

TOOLS = [
    {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
]
SIX_STEPS = wire.Script(
    (wire.think("hm"), "I look.", wire.call("look", at="a")),
    (wire.call("look", at="b"), wire.call("look", at="c")),
    (wire.think("so"), wire.call("look", at="d")),
    (wire.call("look"),),
    ("Nearly. ", wire.call("look", at="e"), wire.call("look", at="f"), wire.call("look", at="g")),
    (wire.think("done"), "Seen."),
)


@pytest.fixture
def settings() -> wire.Settings:
    return wire.Settings()


@pytest.fixture
def server(settings: wire.Settings) -> Iterator[wire.Server]:
    script = wire.Script(*SIX_STEPS._turns)
    with wire.serve_in_thread(script, settings) as running:
        yield running


@pytest.fixture
def client(server: wire.Server) -> Iterator[Any]:
    with anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=0) as made:
        yield made


def asked(messages: list[Any], model: str) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": 2000,
        "tools": TOOLS,
        "messages": messages,
        "thinking": {"type": "adaptive"},
        "cache_control": {"type": "ephemeral"},
    }


def answer(reply: Any, messages: list[Any]) -> bool:
    """Add *reply* and the results of its calls; say whether there were any."""
    messages.append({"role": "assistant", "content": reply.content})
    calls = [block for block in reply.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": str(block.input)} for block in calls]
    if results:
        messages.append({"role": "user", "content": results})
    return bool(results)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-opus-4-8"])
def test_six_steps_whole(server: wire.Server, client: Any, model: str):
    messages: list[Any] = [{"role": "user", "content": "look around"}]
    while answer(reply := client.messages.create(**asked(messages, model)), messages):
        pass
    assert (reply.stop_reason, reply.content[-1].text, len(messages)) == ("end_turn", "Seen.", 12)
    assert server.violations == ()


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-opus-4-8"])
def test_six_steps_streamed(server: wire.Server, client: Any, model: str):
    messages: list[Any] = [{"role": "user", "content": "look around"}]
    more = True
    while more:
        with client.messages.stream(**asked(messages, model)) as stream:
            reply = stream.get_final_message()
        more = answer(reply, messages)
    assert (reply.stop_reason, reply.content[-1].text, len(messages)) == ("end_turn", "Seen.", 12)
    assert server.violations == ()


ERRORS = [
    (400, "BadRequestError"), (401, "AuthenticationError"), (403, "PermissionDeniedError"), (404, "NotFoundError"),
    (409, "ConflictError"), (429, "RateLimitError"), (500, "InternalServerError"), (529, "OverloadedError"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "name"),
    [(wire.Settings(faults=[wire.Failure(status, message="no")]), name) for status, name in ERRORS],
)
def test_an_error_is_typed(client: Any, name: str):
    with pytest.raises(anthropic.APIStatusError, match="no") as caught:
        client.messages.create(model="claude-opus-5-5", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    assert (type(caught.value).__name__, caught.value.request_id is not None) == (name, True)


@pytest.mark.parametrize("settings", [wire.Settings(faults=[wire.ErrorEvent(at=3)])])
def test_an_error_in_a_stream_is_raised(client: Any):
    ask = asked([{"role": "user", "content": "x"}], "claude-opus-5-5")
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"), client.messages.stream(**ask) as stream:
        stream.get_final_message()


def test_a_rule_that_is_broken_is_raised(server: wire.Server, client: Any):
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        client.messages.create(
            model="claude-opus-5-5",
            max_tokens=9,
            messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
        )
    assert [found.rule for found in server.violations] == ["A13"]


@pytest.mark.parametrize("settings", [wire.Settings(faults=wire.first(2, wire.Failure(529)))])
def test_a_busy_server_is_asked_again(server: wire.Server, client: Any):
    reply = client.with_options(max_retries=2).messages.create(
        **asked([{"role": "user", "content": "x"}], "claude-opus-5-5")
    )
    assert (reply.stop_reason, len(server.journal), server.journal[2].repeats) == ("tool_use", 3, 1)


def test_tokens_are_counted_and_models_listed(client: Any):
    counted = client.messages.count_tokens(model="claude-opus-5-5", messages=[{"role": "user", "content": "x" * 40}])
    assert counted.input_tokens == 10
    assert client.models.retrieve("claude-opus-5-5").capabilities.thinking.types.adaptive.supported
    assert "claude-opus-5-5" in [model.id for model in client.models.list()]


UNUSUAL = (
    wire.Chunks(1), wire.SplitCharacters(), wire.SplitNewlines(), wire.Newlines("\r\n"), wire.Comments(), wire.Pings(),
    wire.Gzip(), wire.DuplicateDone(), wire.Inject('{"type":"news"}', name="news"),
)  # fmt: skip


@pytest.mark.parametrize("settings", [wire.Settings(faults=[fault]) for fault in UNUSUAL], ids=map(repr, UNUSUAL))
def test_a_reply_survives_what_is_only_unusual(client: Any):
    with client.messages.stream(**asked([{"role": "user", "content": "x"}], "claude-opus-5-5")) as stream:
        assert stream.get_final_message().content[1].text == "I look."
