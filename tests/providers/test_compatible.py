"""The provider for compatible servers, over a real socket: on loopback, with the real clock."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest
from providers_loopback import END, HEAD, Server, Step, answer, chunk, events, serving, streamed, text
from providers_parts import request, tool, tools, user

from shoal.errors import (
    ContextOverflow,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers import (
    Capabilities,
    Completed,
    ModelProfile,
    Request,
    RetryPolicy,
    Text,
    TextDelta,
    Timeouts,
    TokenCount,
    Usage,
    codex,
    compatible,
    exchange,
)
from shoal.testing import request_json

pytestmark = [pytest.mark.anyio, pytest.mark.sockets]

HI = request(user("hi"), timeout_s=10.0)
KEY = "sk-very-secret-key"


async def replied(url: str, sent: Request = HI, **settings: Any) -> Completed:
    provider = compatible(url, **settings)
    try:
        return await exchange(provider, sent, policy=RetryPolicy(attempts=1))
    finally:
        await provider.aclose()


async def played(*steps: Step, sent: Request = HI, **settings: Any) -> Completed:
    async with serving(steps) as server:
        return await replied(server.url, sent, **settings)


# --- good answers


async def test_a_reply_streams_and_ends_in_what_was_billed():
    provider_text: list[str] = []
    async with serving(streamed(*text("Hel", "lo"))) as server:
        provider = compatible(server.url, api_key=KEY)
        async with aclosing(provider.stream(HI)) as stream:
            provider_text = [event.text async for event in stream if isinstance(event, TextDelta)]
        await provider.aclose()
    assert provider_text == ["Hel", "lo"]


async def test_a_reply_says_who_answered_and_under_which_id():
    completed = await played(*streamed({"model": "m-2026"}, *text("a")))
    assert (completed.model, completed.request_id, completed.finish) == ("m-2026", "r-1", "stop")
    assert completed.usage == Usage(9, output=1)
    assert not completed.simulated


async def test_the_request_arrives_whole_with_its_length_and_key():
    big = request(user("x" * 300_000), timeout_s=10.0)
    async with serving(streamed(*text("a"))) as server:
        await replied(server.url, big, api_key=KEY, headers={"X-Title": "demo"})
    [received] = server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["content-length"] == str(len(received.body))
    assert "transfer-encoding" not in received.headers
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["x-title"] == "demo"
    assert received.json["messages"] == [{"role": "user", "content": "x" * 300_000}]


async def test_azure_gets_the_key_in_its_own_header():
    async with serving(streamed(*text("a"))) as server:
        await replied(server.url, api_key=KEY, capabilities="azure")
    assert server.received[0].headers["api-key"] == KEY
    assert "authorization" not in server.received[0].headers


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_a_reply_does_not_depend_on_how_the_bytes_are_cut(size: int):
    body = b": ping\r\n\r\n" + events(*text("é\N{LINE SEPARATOR}", "\N{GRINNING FACE}")).replace(b"\n", b"\r\n")
    pieces = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
    completed = await played(HEAD, *pieces, END)
    assert str(completed.reply.text) == "é\N{LINE SEPARATOR}\N{GRINNING FACE}"


async def test_calls_arrive_under_our_own_names():
    sent = request(user("x"), tools=tools(tool("server.tool")), timeout_s=10.0)
    offered = request_json(sent)["tools"][0]["function"]["name"]
    call = {"index": 0, "id": "c", "function": {"name": offered, "arguments": "{}"}}
    completed = await played(*streamed({"choices": [{"delta": {"tool_calls": [call]}}]}), sent=sent)
    assert offered != "server.tool"
    assert [made.name for made in completed.reply.calls] == ["server.tool"]


async def test_a_second_end_mark_and_what_follows_the_first_are_ignored():
    body = events(*text("a")) + b"data: [DONE]\n\ndata: {}\n\n"
    assert str((await played(HEAD, chunk(body), END)).reply.text) == "a"


async def test_a_server_that_does_not_stream_is_understood():
    whole = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    assert str((await played(*answer(200, whole))).reply.text) == "whole"


async def test_one_connection_serves_many_requests():
    async with serving(streamed(*text("a")), streamed(*text("b"))) as server:
        provider = compatible(server.url)
        for _ in range(2):
            await exchange(provider, HI)
        await provider.aclose()
    assert server.connections == 1


async def test_a_server_that_keeps_the_stream_open_behind_its_end_mark_holds_nothing_up():
    assert str((await played(HEAD, chunk(events(*text("a"))), "wait")).reply.text) == "a"


async def test_a_provider_that_was_closed_opens_anew():
    async with serving(streamed(*text("a")), streamed(*text("b"))) as server:
        provider = compatible(server.url)
        await exchange(provider, HI)
        await provider.aclose()
        await provider.aclose()
        assert str((await exchange(provider, HI)).reply.text) == "b"
        await provider.aclose()


async def test_a_stream_that_only_finishes_is_whole_where_the_server_has_no_end_mark():
    record = Capabilities("other", ends_with="finish")
    body = events(*text("a"), done=False)
    assert str((await played(HEAD, chunk(body), END, capabilities=record)).reply.text) == "a"


# --- bad answers


@pytest.mark.parametrize(
    "steps",
    [
        (HEAD, chunk(events(*text("a"), done=False)), END),
        (HEAD, chunk(events(*text("a"))[:-20]), END),
        (HEAD, chunk(events(*text("a"), done=False)), "close"),
        (HEAD, chunk(events(*text("a"), done=False)), "reset"),
        (HEAD, END),
        (HEAD, "reset"),
        ("reset",),
        ("close",),
        (b"HTTP/1.1 garbage\r\n\r\n",),
        (HEAD, b"zz\r\n"),
    ],
)
async def test_an_answer_that_is_not_whole_is_none(steps: tuple[Step, ...]):
    with pytest.raises(ProviderError) as caught:
        await played(*steps)
    assert caught.value.retryable or type(caught.value).__name__ == "PartialReply"


async def test_an_answer_that_is_compressed_though_nobody_asked_is_refused():
    head = HEAD.replace(b"text/event-stream", b"text/event-stream\r\ncontent-encoding: gzip")
    with pytest.raises(ProviderRefused, match="'gzip'"):
        await played(head, chunk(b"?"), END)


async def test_an_end_without_a_finish_is_a_cut_where_the_server_has_no_end_mark():
    body = events(*text("a")[:1], done=False)
    with pytest.raises(ProviderError, match="cut"):
        await played(HEAD, chunk(body), END, capabilities=Capabilities("other", ends_with="finish"))


@pytest.mark.parametrize(
    ("steps", "leaf"),
    [
        (answer(429, {"error": {"message": "slow"}}, retry_after="2"), ProviderBusy),
        (answer(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ProviderSetup),
        (answer(400, {"error": {"code": "context_length_exceeded", "message": "too long"}}), ContextOverflow),
        (answer(502, b"<html>bad gateway</html>", content_type="text/html"), ProviderUnavailable),
        (answer(404, {"error": {"code": "model_not_found", "message": "no m"}}), ProviderRefused),
        (answer(200, {"error": {"message": "quietly", "type": "invalid_request_error"}}), ProviderRefused),
        (answer(200, b"<html>", content_type="text/html"), ProviderUnavailable),
    ],
)
async def test_an_error_answer_is_the_error_that_it_means(steps: tuple[Step, ...], leaf: type[ProviderError]):
    with pytest.raises(leaf) as caught:
        await played(*steps, api_key=KEY)
    assert caught.value.provider == "generic"


async def test_an_error_in_the_middle_of_a_stream_is_raised_by_its_type():
    body = events(*text("a")[:1], {"error": {"type": "invalid_request_error", "message": "no"}}, done=False)
    with pytest.raises(ProviderRefused, match="no"):
        await played(HEAD, chunk(body), END)


async def test_the_body_of_an_error_may_be_cut():
    with pytest.raises(ProviderUnavailable, match="a half"):
        await played(b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\na half", "close")


async def test_an_endless_error_body_is_not_read_to_its_end():
    many = [chunk(b"x" * 100_000) for _ in range(20)]
    with pytest.raises(ProviderUnavailable):
        await played(HEAD.replace(b"200", b"500"), *many, "wait")


async def test_nobody_there_is_unavailable():
    async with serving() as server:
        pass
    with pytest.raises(ProviderUnavailable, match="check the network"):
        await replied(server.url)


async def test_no_secret_is_in_an_error_or_a_repr():
    async with serving() as server:
        url = f"http://user:{KEY}@127.0.0.1:{server.port}/v1"
    provider = compatible(url, api_key=KEY, headers={"X-Key": KEY})
    with pytest.raises(ProviderUnavailable) as caught:
        await exchange(provider, HI, policy=RetryPolicy(attempts=1))
    said = [
        str(caught.value),
        repr(caught.value),
        repr(vars(caught.value)),
        repr(caught.value.__cause__),
        repr(provider),
    ]
    assert not any(KEY in one for one in said)
    await provider.aclose()


async def test_a_vendor_that_repeats_the_key_is_not_repeated():
    with pytest.raises(ProviderSetup) as caught:
        await played(*answer(401, {"error": {"message": f"bad key {KEY}"}}), api_key=KEY)
    assert KEY not in str(caught.value)


async def test_of_a_secret_that_begins_with_another_nothing_is_left():
    body = {"error": {"message": f"bad pass {KEY}-for-the-door"}}
    with pytest.raises(ProviderSetup) as caught:
        await played(*answer(401, body), api_key=KEY, headers={"X-Pass": f"{KEY}-for-the-door"})
    assert "door" not in str(caught.value)


# --- time


async def test_no_first_byte_in_time_is_unavailable():
    with pytest.raises(ProviderUnavailable, match="in time"):
        await played("wait", timeouts=Timeouts(first_byte_s=0.05))


async def test_silence_in_the_middle_of_a_stream_is_unavailable():
    with pytest.raises(ProviderError, match="cut"):
        await played(HEAD, chunk(events(*text("a"), done=False)), "wait", timeouts=Timeouts(idle_s=0.05))


async def test_cancelling_closes_the_connection():
    async with serving((HEAD, chunk(events(*text("a"), done=False)), "wait")) as server:
        provider = compatible(server.url)
        seen = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await exchange(provider, HI, on_delta=lambda _: seen.set())

            tasks.start_soon(ask)
            await seen.wait()
            assert not server.gone.is_set()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(5):
            await server.gone.wait()
        assert server.gone.is_set()
        await provider.aclose()


async def test_leaving_a_stream_early_closes_the_connection():
    async with serving((HEAD, chunk(events(*text("a"), done=False)), "wait")) as server:
        provider = compatible(server.url)
        async with aclosing(provider.stream(HI)) as stream:
            assert await anext(stream) == TextDelta("a")
        with anyio.fail_after(5):
            await server.gone.wait()
        await provider.aclose()


async def test_a_cut_stream_is_asked_again_over_a_new_connection():
    cut = (HEAD, chunk(events(*text("a"), done=False)), "close")
    async with serving(cut, streamed(*text("b"))) as server:
        provider = compatible(server.url)
        completed = await exchange(provider, HI, policy=RetryPolicy(blip_s=0.01))
        await provider.aclose()
    assert str(completed.reply.text) == "b"
    assert len(server.received) == 2


# --- counting


async def counted(*plays: tuple[Step, ...], capabilities: str) -> tuple[TokenCount, list[Any]]:
    async with serving(*plays) as server:
        provider = compatible(server.url, capabilities=capabilities)
        try:
            return await provider.count_tokens(HI), server.received
        finally:
            await provider.aclose()


async def test_llama_cpp_counts_what_its_template_makes_of_the_messages():
    count, received = await counted(
        answer(200, {"prompt": "<|user|>hi"}), answer(200, {"tokens": [1, 2, 3]}), capabilities="llama.cpp"
    )
    assert count == TokenCount(3, "server", exact=True)
    assert [one.path for one in received] == ["/apply-template", "/tokenize"]
    assert received[1].json == {"add_special": True, "content": "<|user|>hi", "parse_special": True}


async def test_vllm_counts_messages():
    count, received = await counted(answer(200, {"count": 7}), capabilities="vllm")
    assert (count.tokens, count.exact, received[0].path) == (7, True, "/tokenize")


@pytest.mark.parametrize(
    "plays",
    [
        (answer(404, {}),),
        (answer(200, {"prompt": "x"}), answer(501, {})),
        (answer(200, {"detail": "of a proxy"}),),
        (answer(200, {"prompt": "x"}), answer(200, {"tokens": "many"})),
    ],
)
async def test_a_server_without_a_tokenizer_is_estimated(plays: tuple[tuple[Step, ...], ...]):
    count, _ = await counted(*plays, capabilities="llama.cpp")
    assert (count.how, count.exact) == ("estimate", False)


async def test_a_count_of_nothing_is_none():
    count, _ = await counted(answer(200, {"count": 0}), capabilities="vllm")
    assert (count.how, count.exact) == ("estimate", False)


async def test_a_prompt_with_half_a_character_is_counted_with_what_stands_for_it():
    rendered = answer(200, b'{"prompt": "a \\ud83d"}')
    count, received = await counted(rendered, answer(200, {"tokens": [1]}), capabilities="llama.cpp")
    assert (count.tokens, received[1].json["content"]) == (1, "a \N{REPLACEMENT CHARACTER}")


async def test_a_tokenizer_that_fails_is_an_error():
    with pytest.raises(ProviderUnavailable):
        await counted(answer(500, {}), capabilities="vllm")


async def test_without_a_tokenizer_no_server_is_asked():
    count, received = await counted(capabilities="generic")
    assert count.how == "estimate"
    assert count.tokens > 5
    assert received == []


async def test_texts_are_written_as_the_window_holds_them():
    odd = 'quote " slash \\ \N{LINE SEPARATOR} \N{GRINNING FACE}\n'
    async with serving(streamed(*text("a"))) as server:
        await replied(server.url, request(user(odd), tail=Text.of("T"), timeout_s=10.0))
    assert server.received[0].json["messages"][0]["content"] == odd + "\n\nT"


# --- what a server says of itself


async def described(server: Server, capabilities: str) -> ModelProfile:
    provider = compatible(server.url, capabilities=capabilities)
    try:
        return await provider.discover("m")
    finally:
        await provider.aclose()


@pytest.mark.parametrize(
    ("capabilities", "body"),
    [
        ("llama.cpp", {"default_generation_settings": {"n_ctx": 3000}}),
        ("llama.cpp", {"default_generation_settings": {"params": {"n_ctx": 3000}}}),
        ("vllm", {"data": [{"id": "other", "max_model_len": 9}, {"id": "m", "max_model_len": 3000}]}),
    ],
)
async def test_a_server_says_how_large_its_window_is(capabilities: str, body: dict[str, Any]):
    async with serving(answer(200, body)) as server:
        profile = await described(server, capabilities)
    assert (profile.window_tokens, profile.max_output_tokens, profile.window_source) == (
        3000,
        3000,
        "the server itself",
    )
    assert dict(profile.sources)["context"] == "the vendor's API"


@pytest.mark.parametrize(
    ("capabilities", "steps"),
    [("llama.cpp", answer(404, {})), ("vllm", answer(200, {"data": []})), ("llama.cpp", answer(200, {}))],
)
async def test_a_server_that_says_nothing_of_it_is_taken_to_have_the_default(
    capabilities: str, steps: tuple[Step, ...]
):
    async with serving(steps) as server:
        assert (await described(server, capabilities)).window_tokens == 8192


async def test_servers_of_other_kinds_are_not_asked():
    async with serving() as server:
        assert (await described(server, "ollama")).window_tokens == 8192
    assert server.received == []


@pytest.mark.parametrize(
    ("steps", "path"), [(answer(200, {"data": []}), "/v1/models"), (answer(404, {}), "/v1/models")]
)
async def test_a_server_that_is_there_answers_a_check(steps: tuple[Step, ...], path: str):
    async with serving(steps) as server:
        provider = compatible(server.url)
        assert await provider.check()
        await provider.aclose()
    assert server.received[0].path == path


async def test_where_nothing_is_free_nothing_is_asked():
    assert not await codex("k").check()
