"""OpenAI's own client takes our server for OpenAI's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.testing import wire

openai = pytest.importorskip("openai", reason="the dependency group `wire` is not installed")

pytestmark = [pytest.mark.sockets, pytest.mark.wall_limit(300)]  # the official clients take long to import

LOOK = {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
SIX_STEPS: tuple[wire.Playable, ...] = (
    (wire.think("hm"), "I look.", wire.call("look", at="a")),
    (wire.call("look", at="b"), wire.call("look", at="c")),
    (wire.think("so"), wire.call("look", at="d")),
    (wire.call("look"),),
    ("Nearly. ", wire.call("look", at="e"), wire.call("look", at="f"), wire.call("look", at="g")),
    (wire.think("done"), "Seen."),
)
MODELS = ["gpt-5.4", "gpt-6.1-sol"]


@pytest.fixture
def settings() -> wire.Settings:
    return wire.Settings()


@pytest.fixture
def server(settings: wire.Settings) -> Iterator[wire.Server]:
    with wire.serve_in_thread(wire.Script(*SIX_STEPS), settings) as running:
        yield running


@pytest.fixture
def client(server: wire.Server) -> Iterator[Any]:
    with openai.OpenAI(api_key="k", base_url=server.openai_url, max_retries=0) as made:
        yield made


def chat(messages: list[Any], model: str) -> dict[str, Any]:
    return {"model": model, "messages": messages, "tools": [{"type": "function", "function": LOOK}]}


def answer(reply: Any, messages: list[Any]) -> bool:
    """Add *reply* and the results of its calls; say whether there were any."""
    messages.append(reply)
    calls = reply.tool_calls or []
    messages += [{"role": "tool", "tool_call_id": call.id, "content": call.function.arguments} for call in calls]
    return bool(calls)


def sendable(parsed: Any) -> Any:
    """Return a streamed message without what the client parsed, which is no part of the wire."""
    of_call = {"index": True, "function": {"parsed_arguments"}}
    plain = parsed.model_dump(exclude={"parsed": True, "tool_calls": {"__all__": of_call}})
    return openai.types.chat.ChatCompletionMessage.model_validate(plain)


@pytest.mark.parametrize("model", MODELS)
def test_six_steps_of_chat_whole(server: wire.Server, client: Any, model: str):
    messages: list[Any] = [{"role": "user", "content": "look around"}]
    while answer(reply := client.chat.completions.create(**chat(messages, model)).choices[0].message, messages):
        pass
    assert (reply.content, len(messages), server.violations) == ("Seen.", 15, ())


@pytest.mark.parametrize("model", MODELS)
def test_six_steps_of_chat_streamed(server: wire.Server, client: Any, model: str):
    messages: list[Any] = [{"role": "user", "content": "look around"}]
    more = True
    while more:
        with client.chat.completions.stream(**chat(messages, model), stream_options={"include_usage": True}) as stream:
            completion = stream.get_final_completion()
        more = answer(sendable(completion.choices[0].message), messages)
    assert (completion.choices[0].message.content, len(messages), server.violations) == ("Seen.", 15, ())
    assert completion.usage.prompt_tokens == server.ledger[-1].input


# --- Responses


def respond(items: list[Any], model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": items, "tools": [{"type": "function", "strict": False, **LOOK}],
            "reasoning": {"effort": "low", "summary": "auto"}, **more}  # fmt: skip


def results(output: Any) -> list[Any]:
    """Return an output for each call in *output*."""
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": item.arguments}
        for item in output
        if item.type == "function_call"
    ]


STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("more", [STATELESS, {"store": True}], ids=["encrypted", "stored"])
def test_six_steps_of_responses_whole(server: wire.Server, client: Any, model: str, more: dict[str, Any]):
    items: list[Any] = [{"role": "user", "content": "look around"}]
    answers: list[Any] = items
    while answers:
        response = client.responses.create(**respond(items, model, **more))
        answers = results(response.output)
        items += [*response.output, *answers]
    assert (response.output_text, len(server.journal), server.violations) == ("Seen.", 6, ())


@pytest.mark.parametrize("model", MODELS)
def test_six_steps_of_responses_streamed(server: wire.Server, client: Any, model: str):
    items: list[Any] = [{"role": "user", "content": "look around"}]
    answers: list[Any] = items
    while answers:
        with client.responses.stream(**respond(items, model, **STATELESS)) as stream:
            response = stream.get_final_response()
        answers = results(response.output)
        items += [sendable_item(item) for item in response.output] + answers
    assert (response.output_text, len(server.journal), server.violations) == ("Seen.", 6, ())
    assert response.usage.input_tokens == server.ledger[-1].input


def sendable_item(item: Any) -> Any:
    """Return an item without what the client parsed."""
    return item.model_dump(exclude={"parsed_arguments": True, "content": {"__all__": {"parsed"}}}, exclude_unset=True)


def test_six_steps_go_on_from_response_to_response(server: wire.Server, client: Any):
    response = client.responses.create(**respond([{"role": "user", "content": "look around"}], "gpt-5.4"))
    while answers := results(response.output):
        body = respond(answers, "gpt-5.4", previous_response_id=response.id)
        response = client.responses.create(**body)
    assert (response.output_text, len(server.journal), server.violations) == ("Seen.", 6, ())


def test_every_event_is_one_that_the_client_knows(client: Any):
    stream = client.responses.create(**respond([{"role": "user", "content": "x"}], "gpt-5.4"), stream=True)
    kinds = {type(event).__name__ for event in stream}
    assert {"ResponseCreatedEvent", "ResponseReasoningSummaryTextDeltaEvent", "ResponseTextDoneEvent",
            "ResponseFunctionCallArgumentsDoneEvent", "ResponseCompletedEvent"} <= kinds  # fmt: skip


def test_a_broken_rule_of_responses_is_raised(server: wire.Server, client: Any):
    items = [{"type": "function_call_output", "call_id": "c", "output": "x"}]
    with pytest.raises(openai.BadRequestError, match="No tool call found"):
        client.responses.create(model="gpt-5.4", input=items)
    assert [found.rule for found in server.violations] == ["R1"]


@pytest.mark.parametrize("settings", [wire.Settings(faults=[wire.ErrorEvent(at=1)])])
def test_an_error_in_a_stream_of_events_is_its_last(client: Any):
    last = list(client.responses.create(model="gpt-5.4", input="x", stream=True))[-1]
    assert (type(last).__name__, last.message) == ("ResponseErrorEvent", "Overloaded")


def test_tokens_of_a_response_are_counted(server: wire.Server, client: Any):
    counted = client.responses.input_tokens.count(model="gpt-5.4", input="x" * 40)
    assert counted.input_tokens == 10


def test_a_stored_response_is_retrieved(client: Any):
    response = client.responses.create(model="gpt-5.4", input="x")
    assert client.responses.retrieve(response.id).output_text == response.output_text


def test_the_transport_that_keeps_nothing_is_the_same_to_the_client(server: wire.Server):
    with openai.OpenAI(api_key="k", base_url=f"{server.base_url}/backend-api/codex", max_retries=0) as client:
        body = respond([{"role": "user", "content": "x"}], "gpt-5.4", instructions="be brief", **STATELESS)
        events = list(client.responses.create(**body, stream=True))
    assert (events[-1].response.output_text, server.violations) == ("I look.", ())


ERRORS = [
    (400, "BadRequestError"), (401, "AuthenticationError"), (403, "PermissionDeniedError"), (404, "NotFoundError"),
    (409, "ConflictError"), (422, "UnprocessableEntityError"), (429, "RateLimitError"), (500, "InternalServerError"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "name"),
    [(wire.Settings(faults=[wire.Failure(status, message="no")]), name) for status, name in ERRORS],
)
def test_an_error_is_typed(client: Any, name: str):
    with pytest.raises(openai.APIStatusError, match="no") as caught:
        client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": "x"}])
    assert (type(caught.value).__name__, caught.value.request_id is not None) == (name, True)


@pytest.mark.parametrize("settings", [wire.Settings(faults=[wire.ErrorEvent(at=1)])])
def test_an_error_in_a_stream_of_chunks_is_raised(client: Any):
    ask = chat([{"role": "user", "content": "x"}], "gpt-5.4")
    with pytest.raises(openai.APIError, match="Overloaded"):
        list(client.chat.completions.create(**ask, stream=True))


def test_a_rule_that_is_broken_is_raised(server: wire.Server, client: Any):
    with pytest.raises(openai.BadRequestError, match="preceeding message") as caught:
        client.chat.completions.create(
            model="gpt-5.4", messages=[{"role": "tool", "tool_call_id": "c", "content": "x"}]
        )
    assert (caught.value.param, [found.rule for found in server.violations]) == ("messages.[0].role", ["O2"])


@pytest.mark.parametrize("settings", [wire.Settings(faults=wire.first(2, wire.Failure(429)))])
def test_a_busy_server_is_asked_again(server: wire.Server, client: Any):
    ask = chat([{"role": "user", "content": "x"}], "gpt-5.4")
    reply = client.with_options(max_retries=2).chat.completions.create(**ask)
    assert (reply.choices[0].finish_reason, len(server.journal)) == ("tool_calls", 3)


def test_models_are_listed(client: Any):
    assert "gpt-5.4" in [model.id for model in client.models.list()]
    assert client.models.retrieve("gpt-5.4").object == "model"


UNUSUAL = (
    wire.Chunks(1), wire.SplitCharacters(), wire.SplitNewlines(), wire.Newlines("\r\n"), wire.Comments(), wire.Pings(),
    wire.Gzip(), wire.DuplicateDone(),
)  # fmt: skip


@pytest.mark.parametrize("settings", [wire.Settings(faults=[fault]) for fault in UNUSUAL], ids=map(repr, UNUSUAL))
def test_a_reply_survives_what_is_only_unusual(client: Any):
    with client.chat.completions.stream(**chat([{"role": "user", "content": "x"}], "gpt-5.4")) as stream:
        assert stream.get_final_completion().choices[0].message.content == "I look."


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_the_shapes_are_those_of_the_official_client(name: str):
    from shapes_from_clients import HERE, MADE, text

    assert text(MADE[name]()) == (HERE / f"shape_{name}.json").read_text("utf-8")
