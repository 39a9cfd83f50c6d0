"""Answers that are no reply, as errors."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import (
    ContextOverflow,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers._refusals import Asked, body_of, refusal, retry_after_s

ASKED = Asked("acme", "m", ("sk-secret-key",))


def refused(body: object, status: int = 400, **headers: str) -> ProviderError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refusal(ASKED, body, status=status, headers=named, now=lambda: 0.0)


def error(**said: Any) -> dict[str, Any]:
    return {"error": said}


@pytest.mark.parametrize(
    ("body", "status", "leaf"),
    [
        (error(type="rate_limit_error"), 400, ProviderBusy),
        (error(type="overloaded_error"), 200, ProviderBusy),
        (error(code="insufficient_quota", type="insufficient_quota"), 429, ProviderSetup),
        (error(message="Your credit balance is too low"), 400, ProviderSetup),
        (error(message="out of credits"), 402, ProviderSetup),
        (
            error(message="You exceeded your current quota, please check your plan and billing details."),
            429,
            ProviderSetup,
        ),
        (error(message="You have reached your specified API usage limits."), 400, ProviderSetup),
        (error(message="The usage limit has been reached"), 429, ProviderSetup),
        (
            error(type="invalid_request_error", message="Invalid schema for function 'billing_lookup'"),
            400,
            ProviderRefused,
        ),
        (error(), 407, ProviderSetup),
        (error(code="invalid_api_key"), 400, ProviderSetup),
        (error(), 401, ProviderSetup),
        (error(), 403, ProviderSetup),
        (error(type="permission_error"), 400, ProviderSetup),
        (error(code="content_filter"), 400, ProviderRefused),
        (error(code="content_filter"), 403, ProviderRefused),
        (error(code="model_not_found"), 404, ProviderRefused),
        (error(code="context_length_exceeded"), 400, ContextOverflow),
        (error(type="exceed_context_size_error"), 400, ContextOverflow),
        (error(), 429, ProviderBusy),
        (error(), 529, ProviderBusy),
        (error(message="The model is overloaded"), 503, ProviderBusy),
        (error(message="Loading model", type="unavailable_error"), 503, ProviderUnavailable),
        (error(), 408, ProviderUnavailable),
        (error(), 425, ProviderUnavailable),
        (error(code=499, status="CANCELLED"), 499, ProviderUnavailable),
        (error(), 409, ProviderUnavailable),
        (error(), 500, ProviderUnavailable),
        (error(type="server_error"), 200, ProviderUnavailable),
        (error(message="who knows"), 200, ProviderUnavailable),
        (error(type="invalid_request_error"), 200, ProviderRefused),
        (error(code=502, message="bad gateway"), 200, ProviderUnavailable),
        (error(code=429, message="slow down"), 200, ProviderBusy),
        (error(code=400, type="BadRequestError"), 200, ProviderRefused),
        (error(), 400, ProviderRefused),
        (error(), 422, ProviderRefused),
    ],
)
def test_the_type_in_the_body_decides_and_then_the_status(body: object, status: int, leaf: type[ProviderError]):
    assert type(refused(body, status)) is leaf


@pytest.mark.parametrize(
    ("message", "prompt", "reply", "window"),
    [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 8300 tokens.",
            8300,
            None,
            8192,
        ),
        (
            (
                "This model's maximum context length is 4097 tokens, however you requested 5000 tokens "
                "(4000 in your prompt; 1000 for the completion)."
            ),
            4000,
            1000,
            4097,
        ),
        (
            (
                "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens "
                "(2000 in the messages, 100 in the completion)."
            ),
            2000,
            100,
            2048,
        ),
        (
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is "
                "4096 tokens and your request has 100 input tokens (5000 > 4096 - 100)."
            ),
            100,
            5000,
            4096,
        ),
        ("The decoder prompt (length 3000) is longer than the maximum model length of 2048.", 3000, None, 2048),
        ("Input length (9000) exceeds model's maximum context length (8192).", 9000, None, 8192),
        ("request (2100 tokens) exceeds the available context size (2048 tokens), try increasing it", 2100, None, 2048),
        ("the request exceeds the available context size. try increasing the context size", None, None, None),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", 210_000, None, 200_000),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            40_000,
            None,
            32_768,
        ),
        (
            (
                "You passed 8193 input tokens and requested 1000 output tokens. However, the model's context length is "
                "only 8192 tokens, resulting in a maximum input length of 7192 tokens."
            ),
            8193,
            1000,
            8192,
        ),
    ],
)
def test_an_overflow_is_known_by_its_wording(message: str, prompt: int | None, reply: int | None, window: int | None):
    found = refused(error(message=message, type="invalid_request_error"))
    assert isinstance(found, ContextOverflow)
    assert (found.prompt_tokens, found.reply_tokens, found.window_tokens) == (prompt, reply, window)


def test_an_overflow_of_llama_cpp_gives_its_numbers():
    found = refused(error(code=400, type="exceed_context_size_error", message="no", n_prompt_tokens=9, n_ctx=8))
    assert isinstance(found, ContextOverflow)
    assert (found.prompt_tokens, found.window_tokens) == (9, 8)


def test_a_bad_context_is_no_overflow():
    assert type(refused(error(message="Unsupported value: `context` must be a string"))) is ProviderRefused


def test_an_error_carries_who_was_asked_the_request_and_the_status():
    found = refused(error(message="no"), 500, x_request_id="r-1")
    assert (found.provider, found.model, found.request_id, found.status) == ("acme", "m", "r-1", 500)
    assert "acme: no" in str(found)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "plain"}, "plain"),
        ({"object": "error", "message": "old vllm", "code": 400}, "old vllm"),
        ({"detail": "fastapi"}, "fastapi"),
        ({"detail": [{"msg": "field required"}, {"msg": "too long"}]}, "field required too long"),
        ([{"error": {"message": "listed"}}], "listed"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error": {"message": "inner"}}'}}},
            "inner",
        ),
        ({"error": {"message": "outer", "metadata": {"raw": "plain inner"}}}, "plain inner"),
        ({"error": {"message": "outer", "metadata": {"raw": {"message": "object inner"}}}}, "object inner"),
        (b"not json", "not json"),
        (b"<html><body>413</body></html>", "an HTML page (HTTP 400)"),
        (b'\xef\xbb\xbf{"error": "behind a mark"}', "acme: behind a mark"),
        ('{"error": "of two bytes each"}'.encode("utf-16"), "acme: of two bytes each"),
        ({"error": {"message": "half \ud83d"}}, "half \N{REPLACEMENT CHARACTER}"),
        ({"error": {"message": "outer", "metadata": {"raw": "\ud83d half"}}}, "\N{REPLACEMENT CHARACTER} half"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b"[" * 100_000, "[["),
        ([], "HTTP 400"),
        (None, "HTTP 400"),
    ],
)
def test_what_the_vendor_says_is_found_in_every_shape(body: object, said: str):
    assert said in str(refused(body_of(body) if isinstance(body, bytes) else body))


def test_a_nested_error_of_a_gateway_decides_too():
    raw = '{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}'
    assert isinstance(refused(error(message="Provider returned error", metadata={"raw": raw})), ContextOverflow)


def test_an_error_repeats_no_secret_and_no_endless_text():
    found = refused(error(message="key sk-secret-key is wrong\n" + "x" * 5000), 401)
    assert "sk-secret" not in str(found)
    assert len(str(found)) < 600


def test_the_vendor_may_say_that_trying_again_is_no_use():
    assert type(refused(error(), 500, x_should_retry="false")) is ProviderRefused


def test_the_vendor_may_say_that_trying_again_is_of_use():
    assert type(refused(error(), 400, x_should_retry="true")) is ProviderUnavailable


def test_a_missing_key_is_not_retried_whatever_the_vendor_says():
    assert type(refused(error(), 401, x_should_retry="true")) is ProviderSetup


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Fri, 31 Dec 99999999999 23:59:59 GMT"}, None),
    ],
)
def test_the_wait_that_the_vendor_asks_for_is_read(headers: dict[str, str], wait_s: float | None):
    assert retry_after_s(headers, 10.0) == wait_s


def test_a_limit_that_is_over_soon_is_no_drained_account_though_its_words_are_about_money():
    words = "You exceeded your current quota, please check your plan and billing details."
    said = error(status="RESOURCE_EXHAUSTED", message=words, details=[{"retryDelay": "34s"}])
    found = refused(said, 429)
    assert isinstance(found, ProviderBusy)
    assert found.retry_after_s == 34.0
    assert type(refused(error(message=words), 429, retry_after="9")) is ProviderBusy
    assert type(refused(error(code="rate_limit_exceeded", message=words), 429)) is ProviderBusy


def test_a_busy_vendor_says_how_long():
    found = refused(error(), 429, retry_after="3")
    assert isinstance(found, ProviderBusy)
    assert found.retry_after_s == 3.0


def test_no_secret_stands_in_the_repr_of_who_was_asked():
    assert "secret" not in repr(ASKED)


@pytest.mark.parametrize(("status", "should_retry"), [(503, ""), (500, ""), (409, ""), (400, "true")])
def test_a_failure_that_says_how_long_it_lasts_is_a_busy_vendor(status: int, should_retry: str):
    found = refused(error(), status, retry_after="3", x_should_retry=should_retry)
    assert isinstance(found, ProviderBusy)
    assert found.retry_after_s == 3.0


def test_a_number_that_no_window_has_is_no_number():
    found = refused(error(message="prompt is too long: " + "9" * 5000 + " tokens > 5 maximum"))
    assert isinstance(found, ContextOverflow)
    assert (found.prompt_tokens, found.window_tokens) == (None, 5)


@pytest.mark.parametrize("status", [204, 302, 404, 405])
def test_who_is_not_there_is_looked_for_in_the_base_url(status: int):
    assert "base URL" in str(refused(error(), status))
    assert "base URL" not in str(refused(error(code="model_not_found"), status))


def test_the_body_names_the_request_where_no_header_does():
    assert refused({"error": {"message": "no"}, "request_id": "r-2"}).request_id == "r-2"
    assert refused({"error": {"message": "no"}, "request_id": "r-2"}, request_id="r-1").request_id == "r-1"


def test_a_name_of_the_request_is_no_longer_than_names_are():
    assert refused(error(), x_request_id="r" * 9000).request_id == "r" * 256


@pytest.mark.parametrize("words", ["1", "exceed ", "context length ", "reached your ", "length ", "token count "])
def test_a_message_that_repeats_what_is_looked_for_is_read_like_any_other(words: str):
    assert isinstance(refused(error(message=words * 100_000)), ProviderRefused)


def test_a_drained_account_is_one_within_a_stream_too():
    assert type(refused(error(message="Your credit balance is too low"), 200)) is ProviderSetup
