"""Gemini answers, read chunk by chunk."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import PNG, user

from shoal.errors import (
    ContextOverflow,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers import (
    Completed,
    Message,
    ReasoningDelta,
    Request,
    Segment,
    Text,
    TextDelta,
    Usage,
    blob,
    shipped_profile,
)
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._gemini_reply import GeminiReply, usage_of
from shoal.providers._refusals import Asked
from shoal.providers._sse import Event, SseDecoder
from shoal.providers._states import Reader

MODEL = "gemini-4-argon"
ASKED = Asked("google", MODEL)


def fresh(**settings: Any) -> GeminiReply:
    settings = {"headers": {}, "names": {}, **settings}
    return GeminiReply(ASKED, reader=Reader("google", MODEL, "gemini"), **settings)


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "r-9", **more}


def call(name: str = "look", **more: Any) -> dict[str, Any]:
    signature = {"thoughtSignature": more.pop("signature")} if "signature" in more else {}
    return {"functionCall": {"name": name, "args": {"x": 1}, **more}, **signature}


def feed(reply: GeminiReply, *chunks: Any) -> list[Any]:
    return [d for one in chunks for d in reply.feed(Event(json.dumps(one, ensure_ascii=False).encode()))]


def completed(*chunks: Any, **settings: Any) -> Completed:
    reply = fresh(**settings)
    feed(reply, *chunks)
    return reply.completed(prompt_bytes=40)


WHOLE = [
    chunk({"text": "hm é", "thought": True}),
    chunk({"text": "Hel"}, usageMetadata={"promptTokenCount": 10, "totalTokenCount": 10}),
    chunk({"text": "lo\N{LINE SEPARATOR}"}),
    chunk({"text": "", "thoughtSignature": "c2ln"}),
    chunk(call(id="fc-1", signature="dHdv"), call("find", id="fc-2")),
    chunk(
        finish="STOP",
        usageMetadata={
            "promptTokenCount": 10,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
        },
    ),
]


def test_a_reply_of_every_kind_of_part_is_read():
    reply = fresh()
    assert feed(reply, *WHOLE) == [ReasoningDelta("hm é"), TextDelta("Hel"), TextDelta("lo\N{LINE SEPARATOR}")]
    made = reply.completed(prompt_bytes=0)
    assert [(c.call_id, c.name, str(c.arguments)) for c in made.reply.calls] == [
        ("fc-1", "look", '{"x": 1}'),
        ("fc-2", "find", '{"x": 1}'),
    ]
    assert (str(made.reply.text), made.reply.reasoning) == ("Hello\N{LINE SEPARATOR}", "hm é")
    assert (made.finish, made.model, made.request_id) == ("tool_calls", MODEL, "r-9")
    assert made.usage == Usage(6, 4, output=7, reasoning=2)


def test_what_came_goes_back_as_it_came():
    made = completed(*WHOLE)
    turn = Message("assistant", (made.reply.text,), made.reply.calls, state=made.reply.state)
    results = [Message("tool", (Text.of("r"),), call_id=one.call_id) for one in made.reply.calls]
    asked = Request(MODEL, messages=(Segment("c", (user("x"), turn, *results), 1),))
    sent = json.loads(bytes(GeminiEncoder("google", shipped_profile(MODEL)).encode(asked).body))
    assert sent["contents"][1]["parts"] == [
        {"text": "Hello\N{LINE SEPARATOR}"},
        {"text": "", "thoughtSignature": "c2ln"},
        call(id="fc-1", signature="dHdv"),
        call("find", id="fc-2"),
    ]
    assert [part["functionResponse"]["id"] for part in sent["contents"][2]["parts"]] == ["fc-1", "fc-2"]


@given(cuts=st.lists(st.integers(0, 4000), max_size=30), end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_reply_does_not_depend_on_how_its_bytes_are_cut(cuts: list[int], end: bytes):
    stream = b"".join([b"data: %b%b%b" % (json.dumps(one, ensure_ascii=False).encode(), end, end) for one in WHOLE])
    places = sorted({0, *[cut for cut in cuts if cut < len(stream)], len(stream)})
    decoder, reply = SseDecoder(), fresh()
    for first, last in itertools.pairwise(places):
        for event in decoder.feed(stream[first:last]):
            list(reply.feed(event))
    assert reply.completed(prompt_bytes=0) == completed(*WHOLE)


def drawn(signature: str = "", **more: Any) -> dict[str, Any]:
    data = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
    return {**data, **({"thoughtSignature": signature} if signature else {}), **more}


def test_what_the_model_made_is_a_part_and_its_bytes_stand_nowhere_else():
    made = completed(chunk({"text": "Here: "}, drawn("c2ln"), {"text": "Good?"}, finish="STOP"))
    assert (str(made.reply.text), made.reply.parts) == ("Here: Good?", (PNG,))
    assert made.reply.state is not None
    assert base64.b64encode(PNG)[:20] not in made.reply.state.data


def test_what_the_model_made_goes_back_to_its_place_with_its_signature():
    made = completed(chunk({"text": "Here: "}, drawn("c2ln"), {"text": "Good?"}, finish="STOP"))
    turn = Message("assistant", (made.reply.text,), state=made.reply.state, blobs=(blob(PNG, "a.png"),))
    asked = Request(MODEL, messages=(Segment("c", (user("x"), turn), 1),))
    sent = json.loads(bytes(GeminiEncoder("google", shipped_profile(MODEL)).encode(asked).body))
    assert sent["contents"][1]["parts"] == [{"text": "Here: "}, drawn("c2ln"), {"text": "Good?"}]


def test_a_sketch_of_a_thought_is_no_part_of_the_answer():
    made = completed(chunk(drawn(thought=True), {"text": "done"}, finish="STOP"))
    assert (made.reply.parts, made.reply.state) == ((), None)


def test_a_part_that_is_no_base64_is_an_error():
    with pytest.raises(ProviderUnavailable, match="google: the reply holds a part that is no base64"):
        completed(chunk({"inlineData": {"data": "%"}}, finish="STOP"))


def test_texts_with_and_without_a_signature_are_not_merged():
    made = completed(
        chunk({"text": "a"}, {"text": "b", "thoughtSignature": "s"}, {"text": "c"}, {"text": "d"}, finish="STOP")
    )
    assert made.reply.state is not None
    assert json.loads(made.reply.state.data)["state"] == [["text", 1], ["text", 1, "s"], ["text", 2]]


def test_a_thought_part_with_a_signature_is_kept_as_it_came():
    thought = {"text": "hm", "thought": True, "thoughtSignature": "s"}
    made = completed(chunk(thought, {"text": "a"}, finish="STOP"))
    assert made.reply.state is not None
    assert json.loads(made.reply.state.data)["state"] == [thought, ["text", 1]]


def test_a_part_of_an_unknown_kind_is_kept_as_it_came():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    made = completed(chunk(code, {"text": "a"}, finish="STOP"))
    assert made.reply.state is not None
    assert json.loads(made.reply.state.data)["state"] == [code, ["text", 1]]


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": "a"}],
        [{"text": "a"}, {"functionCall": {"name": "look"}}],
        [{"text": "", "thoughtSignature": "s"}],
        [{"text": "", "thought": True}, {"text": "a"}],
    ],
)
def test_where_nothing_was_signed_nothing_has_to_come_back(parts: list[dict[str, Any]]):
    assert completed(chunk(*parts, finish="STOP")).reply.state is None


def test_calls_without_ids_and_arguments_get_both():
    made = completed(chunk({"functionCall": {"name": "a"}}, {"functionCall": {"name": "b"}}, finish="STOP"))
    assert len({c.call_id for c in made.reply.calls}) == 2
    assert {str(c.arguments) for c in made.reply.calls} == {"{}"}


def test_names_lead_back_to_our_own():
    assert completed(chunk(call(), finish="STOP"), names={"look": "l.k"}).reply.calls[0].name == "l.k"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("OTHER", "stop"),
        ("A_NEW_ONE", "stop"),
    ],
)
def test_why_it_stopped(reason: str, finish: str):
    assert completed(chunk({"text": "a"}, finish=reason)).finish == finish


def test_a_reason_that_is_not_set_is_none():
    unset = {"promptFeedback": {"blockReason": "BLOCKED_REASON_UNSPECIFIED"}}
    with pytest.raises(ProviderUnavailable, match="end mark"):
        completed(chunk({"text": "a"}, finish="FINISH_REASON_UNSPECIFIED", **unset))


def test_a_prompt_that_was_blocked_is_a_refusal():
    assert (
        completed({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}).finish
        == "refusal"
    )


@pytest.mark.parametrize(
    ("reason", "leaf"),
    [
        ("MALFORMED_FUNCTION_CALL", ProviderUnavailable),
        ("MISSING_THOUGHT_SIGNATURE", ProviderRefused),
        ("CONTINUATION", ProviderRefused),
    ],
)
def test_an_end_that_is_no_reply_is_an_error(reason: str, leaf: type[ProviderError]):
    failed = chunk(finish=reason)
    failed["candidates"][0]["finishMessage"] = "because"
    with pytest.raises(leaf, match=f"{reason}.*because"):
        completed(failed)


def test_an_answer_that_is_a_list_is_read_like_a_stream():
    assert str(completed([chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP")]).reply.text) == "ab"


def test_chunks_without_candidates_or_content_say_nothing():
    assert str(completed({}, {"candidates": [{}]}, {"candidates": [{"content": {}}]}, *WHOLE).reply.text).startswith(
        "Hello"
    )


# --- usage and errors


def test_what_tools_of_the_vendor_read_counts_as_input():
    assert usage_of({"promptTokenCount": 3, "toolUsePromptTokenCount": 4, "candidatesTokenCount": 1}) == Usage(
        7, output=1
    )
    assert usage_of({}) == Usage()


def test_a_server_that_counts_nothing_is_estimated():
    made = completed(chunk({"text": "abcd"}, finish="STOP"))
    assert (made.estimated, made.usage) == (True, Usage(uncached=10, output=1))


@pytest.mark.parametrize(
    ("error", "leaf"),
    [
        ({"code": 503, "status": "UNAVAILABLE", "message": "later"}, ProviderUnavailable),
        (
            {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": [{"retryDelay": "34s"}]},
            ProviderBusy,
        ),
        ({"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}, ProviderRefused),
        (
            {"code": 400, "status": "INVALID_ARGUMENT", "message": "bad", "details": [{"reason": "API_KEY_INVALID"}]},
            ProviderSetup,
        ),
        (
            {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (12) exceeds the maximum number of tokens allowed (10).",
            },
            ContextOverflow,
        ),
    ],
)
def test_an_error_in_the_stream_is_raised_by_its_type(error: dict[str, Any], leaf: type[ProviderError]):
    with pytest.raises(leaf) as caught:
        completed({"error": error})
    if isinstance(caught.value, ProviderBusy):
        assert caught.value.retry_after_s == 34
    if isinstance(caught.value, ContextOverflow):
        assert (caught.value.prompt_tokens, caught.value.window_tokens) == (12, 10)


def test_a_stream_without_a_reason_to_finish_is_cut():
    with pytest.raises(ProviderUnavailable, match="end mark"):
        completed(*WHOLE[:-1])


def test_the_repr_says_how_far_it_is():
    assert repr(fresh()) == f"<GeminiReply of {MODEL}, finish None>"


def test_an_end_mark_that_a_gateway_adds_says_nothing():
    reply = fresh()
    feed(reply, chunk({"text": "a"}, finish="STOP"))
    assert list(reply.feed(Event(b"[DONE]"))) == []
    assert str(reply.completed(prompt_bytes=0).reply.text) == "a"


def test_a_character_that_was_cut_in_a_part_that_goes_back_is_replaced_there():
    reply = fresh()
    part = b'{"executableCode":{"code":"b\xff"}}'
    assert list(reply.feed(Event(b'{"candidates":[{"content":{"parts":[%b]}}]}' % part))) == []
    feed(reply, chunk({"text": "a"}, finish="STOP"))
    state = reply.completed(prompt_bytes=0).reply.state
    assert state is not None
    assert '{"executableCode":{"code":"b\N{REPLACEMENT CHARACTER}"}}'.encode() in state.data
