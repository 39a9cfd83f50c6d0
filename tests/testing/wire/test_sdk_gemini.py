"""Google's own client takes our server for Google's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.testing import wire

genai = pytest.importorskip("google.genai", reason="the dependency group `wire` is not installed")
types = pytest.importorskip("google.genai.types")
errors = pytest.importorskip("google.genai.errors")

pytestmark = [pytest.mark.sockets, pytest.mark.wall_limit(300)]  # the official clients take long to import

LOOK = {"name": "look", "description": "d", "parameters": {"type": "OBJECT", "properties": {"at": {"type": "STRING"}}}}
SIX_STEPS: tuple[wire.Playable, ...] = (
    (wire.think("hm"), "I look.", wire.call("look", at="a")),
    (wire.call("look", at="b"), wire.call("look", at="c")),
    (wire.think("so"), wire.call("look", at="d")),
    (wire.call("look"),),
    ("Nearly. ", wire.call("look", at="e"), wire.call("look", at="f"), wire.call("look", at="g")),
    (wire.think("done"), "Seen it all around."),
)
MODELS = ["gemini-3.8-flash", "gemini-2.5-flash"]
MODEL = MODELS[0]


@pytest.fixture
def settings() -> wire.Settings:
    return wire.Settings()


@pytest.fixture
def server(settings: wire.Settings) -> Iterator[wire.Server]:
    with wire.serve_in_thread(wire.Script(*SIX_STEPS, last="ok"), settings) as running:
        yield running


@pytest.fixture
def client(server: wire.Server) -> Iterator[Any]:
    with genai.Client(api_key="k", http_options=types.HttpOptions(base_url=server.base_url)) as made:
        yield made


CONFIG = {"tools": [{"function_declarations": [LOOK]}], "thinking_config": {"include_thoughts": True}}


def user(text: str) -> Any:
    return types.Content(role="user", parts=[types.Part(text=text)])


def results(calls: Any) -> Any:
    """Return the content that answers *calls*."""
    made = [types.FunctionResponse(id=call.id, name=call.name, response={"output": "seen"}) for call in calls]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in made])


@pytest.mark.parametrize("model", MODELS)
def test_six_steps_whole(server: wire.Server, client: Any, model: str):
    contents = [user("look around")]
    reply = client.models.generate_content(model=model, contents=contents, config=CONFIG)
    while calls := reply.function_calls:
        contents += [reply.candidates[0].content, results(calls)]
        reply = client.models.generate_content(model=model, contents=contents, config=CONFIG)
    assert (reply.text, len(server.journal), server.violations) == ("Seen it all around.", 6, ())
    assert reply.usage_metadata.prompt_token_count == server.ledger[-1].input


@pytest.mark.parametrize("model", MODELS)
def test_six_steps_streamed(server: wire.Server, client: Any, model: str):
    contents = [user("look around")]
    calls: list[Any] = []
    text = ""
    while calls or not text:
        parts: list[Any] = []
        for chunk in client.models.generate_content_stream(model=model, contents=contents, config=CONFIG):
            parts += chunk.candidates[0].content.parts or []
        calls = [part.function_call for part in parts if part.function_call]
        text = "" if calls else "".join(part.text for part in parts if part.text and not part.thought)
        contents += [types.Content(role="model", parts=parts), results(calls)]
    assert (text, len(server.journal), server.violations) == ("Seen it all around.", 6, ())


def test_a_chat_keeps_what_was_said(server: wire.Server, client: Any):
    chat = client.chats.create(model=MODEL, config=CONFIG)
    reply = chat.send_message("look around")
    while calls := reply.function_calls:
        reply = chat.send_message(results(calls).parts)
    assert (reply.text, server.violations) == ("Seen it all around.", ())


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (wire.Settings(faults=[wire.Failure(status, message="no")]), kind)
        for status, kind in ((400, "ClientError"), (429, "ClientError"), (500, "ServerError"), (503, "ServerError"))
    ],
)
def test_an_error_is_typed(client: Any, settings: wire.Settings, kind: str):
    with pytest.raises(errors.APIError, match="no") as caught:
        client.models.generate_content(model=MODEL, contents="x")
    assert type(caught.value).__name__ == kind
    assert caught.value.status == caught.value.details["error"]["status"]


def test_an_error_of_a_stream_is_typed(client: Any):
    with pytest.raises(errors.ClientError, match="not found"):
        list(client.models.generate_content_stream(model="gone", contents="x"))


@pytest.mark.parametrize("settings", [wire.Settings(faults=[wire.ErrorEvent(at=1)])])
def test_an_error_within_a_stream_is_raised(client: Any):
    with pytest.raises(errors.APIError, match="Overloaded"):
        list(client.models.generate_content_stream(model=MODEL, contents="x"))


def test_a_rule_that_is_broken_is_raised(server: wire.Server, client: Any):
    with pytest.raises(errors.ClientError, match="immediately after a function call turn"):
        client.models.generate_content(model=MODEL, contents=[results([types.FunctionCall(name="look", args={})])])
    assert [found.rule for found in server.violations] == ["G2"]


@pytest.mark.parametrize("settings", [wire.Settings(faults=wire.first(2, wire.Failure(429)))])
def test_a_busy_server_is_asked_again(server: wire.Server):
    retry = types.HttpRetryOptions(attempts=3, initial_delay=0.001, max_delay=0.001)
    options = types.HttpOptions(base_url=server.base_url, retry_options=retry)
    with genai.Client(api_key="k", http_options=options) as client:
        reply = client.models.generate_content(model=MODEL, contents="x")
    assert (reply.text, len(server.journal)) == ("I look.", 3)


def test_tokens_are_counted(client: Any):
    assert client.models.count_tokens(model=MODEL, contents="x" * 40).total_tokens == 10


def test_models_are_listed(client: Any):
    assert f"models/{MODEL}" in [model.name for model in client.models.list()]
    assert client.models.get(model=MODEL).input_token_limit == 1_050_000


def test_contents_are_cached_by_name(server: wire.Server, client: Any):
    made = client.caches.create(
        model=MODEL, config={"contents": ["x" * 20_000], "system_instruction": "be brief", "ttl": "60s"}
    )
    reply = client.models.generate_content(model=MODEL, contents="and now?", config={"cached_content": made.name})
    assert reply.usage_metadata.cached_content_token_count == made.usage_metadata.total_token_count == 5002
    assert client.caches.update(name=made.name, config={"ttl": "90s"}).name == made.name
    assert [one.name for one in client.caches.list()] == [made.name]
    client.caches.delete(name=made.name)
    assert (list(client.caches.list()), server.violations) == ([], ())


def test_a_form_is_taken_from_the_client(server: wire.Server, client: Any):
    config = {"response_mime_type": "application/json", "response_schema": {"type": "OBJECT", "properties": {}}}
    client.models.generate_content(model=MODEL, contents="x", config=config)
    assert server.violations == ()


UNUSUAL = (
    wire.Chunks(1), wire.SplitCharacters(), wire.SplitNewlines(), wire.Newlines("\n"), wire.Gzip(),
)  # fmt: skip


@pytest.mark.parametrize("settings", [wire.Settings(faults=[fault]) for fault in UNUSUAL], ids=map(repr, UNUSUAL))
def test_a_reply_survives_what_is_only_unusual(client: Any):
    pieces = [chunk.text or "" for chunk in client.models.generate_content_stream(model=MODEL, contents="x")]
    assert "".join(pieces) == "I look."


def test_the_shape_is_that_of_the_official_client():
    from shapes_from_clients import HERE, MADE, text

    assert text(MADE["gemini"]()) == (HERE / "shape_gemini.json").read_text("utf-8")
