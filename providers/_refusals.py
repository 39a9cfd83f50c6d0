"""Answers that are no reply, turned into the error tree: by the type the body names first, by the status second."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from shoal.errors import (
    ContextOverflow,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
)
from shoal.providers._json import as_count, as_list, as_object, as_text, plain

MAX_QUOTED = 500
MAX_ID = 256
"""Characters of a name that a vendor gives: of a request, or of the model that answered."""
HTML = "an HTML page"

_OVERFLOW = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
_CREDITS = frozenset({"billing_error", "billing_hard_limit_reached", "insufficient_credits", "insufficient_quota"})
_KEY = frozenset(
    {"api_key_invalid", "authentication_error", "invalid_api_key", "invalid_authentication", "unauthenticated"}
)
_PASSING = frozenset({200, 408, 409, 425, 499})
_ELSEWHERE = frozenset({*range(201, 400), 404, 405, 410, 421})
"""What answers where no such API is."""
_PERMISSION = frozenset({"permission_denied", "permission_error"})
_FILTERED = frozenset(
    {"bio_policy", "content_filter", "content_policy_violation", "cyber_policy", "misalignment_policy_violation"}
)
_BUSY = frozenset({"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "resource_exhausted"})
_UNAVAILABLE = frozenset({"api_error", "internal_server_error", "server_error", "timeout_error", "unavailable_error"})

_INVALID = frozenset(
    {
        "badrequesterror",
        "data_residency_mismatch",
        "empty_image_file",
        "failed_precondition",
        "failed_to_download_image",
        "image_content_policy_violation",
        "image_file_not_found",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_argument",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "invalid_prompt",
        "invalid_request_error",
        "model_not_found",
        "not_found",
        "not_found_error",
        "request_too_large",
        "unsupported_image_media_type",
    }
)

# Nothing here looks further than a sentence is long: a body may repeat what was sent, or be made to keep us busy.
_OVERFLOW_WORDS = re.compile(
    r"maximum (?:context|model) length|context (?:size|window|length)[^.]{0,300}exceed|exceeds?[^.]{0,300}\bcontext"
    r"|context length is only \d+|prompt is too long|too large for model with \d+"
    r"|token count[^.]{0,300} exceeds the maximum number of tokens",
    re.IGNORECASE,
)
_CREDIT_WORDS = re.compile(
    r"credit balance|insufficient (?:credits|balance|quota)|billing (?:details|hard limit|limit)"
    r"|(?:reached|exceeded) (?:your|the)[^.]{0,300}\b(?:usage|spend(?:ing)?) (?:cap|limit)"
    r"|usage limit has been reached",
    re.IGNORECASE,
)
_BUSY_WORDS = re.compile(r"overloaded|rate limit", re.IGNORECASE)
_WINDOW = re.compile(
    r"(?:maximum (?:context|model) length (?:is|of)|context length (?:\(|is only )|model with|context size \(|>"
    r"|tokens allowed \(?)"
    r" ?(\d+)",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(?<!\d)(\d{1,15}) (?:tokens )?(?:in (?:the|your) (?:messages|prompt)|of text input|input tokens)"
    r"|(?:resulted in|prompt contains|request \(|length \(?|length |too long:|token count \(?) ?(\d+)(?! ?maximum)",
    re.IGNORECASE,
)
_MOST_DIGITS = 15
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_REPLY = re.compile(
    r"(?<!\d)(\d{1,15}) (?:tokens )?(?:in|for) the (?:completion|output)|requested (\d+) output tokens"
    r"|(?:max_tokens|max_completion_tokens)'? is too large: (\d+)",
    re.IGNORECASE,
)


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked, and what must not be repeated in a message.

    Args:
        provider: Name of the provider.
        model: The model.
        secrets: Texts that a message must not hold.
    """

    provider: str
    model: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def context(self, *, request_id: str | None = None, status: int | None = None) -> dict[str, Any]:
        """Return what every `ProviderError` carries."""
        return {"provider": self.provider, "model": self.model, "request_id": request_id, "status": status}

    def holds_secret(self, text: str) -> bool:
        """Say whether *text* holds what must not be repeated."""
        return any(secret in text for secret in self.secrets)

    def clean(self, text: str) -> str:
        """Return *text* on one line, cut to a length that people read, without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = " ".join(plain(text).split())
        return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + " …"


@final
@dataclass(frozen=True, slots=True)
class Complaint:
    """What an error body says, whatever its shape.

    Args:
        kinds: Its types and codes, lower case, most telling first.
        message: Its text.
        status: A status that the body itself names; `None` where it names none.
        numbers: Numbers that it gives by name.
        retry_s: Seconds after which it asks to be tried again; `None` where it does not say.
        request_id: The vendor's id of the request; `None` where it names none.
    """

    kinds: tuple[str, ...] = ()
    message: str = ""
    status: int | None = None
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    retry_s: float | None = None
    request_id: str | None = None


def complaint_of(body: object) -> Complaint:
    """Return what *body*, a decoded error body, says; vendors disagree on where its parts stand."""
    listed = as_list(body)
    outer = as_object(listed[0] if listed else body)
    inner = outer.get("error", outer.get("detail", outer))
    if isinstance(inner, str):
        return Complaint((as_text(outer.get("type")).lower(),), inner)
    error = as_object(inner)
    said = [error.get(key) for key in ("code", "type", "status")] + [as_object(error.get("innererror")).get("code")]
    codes = [as_count(value) for value in (error.get("code"), outer.get("code"))]
    raw = as_object(error.get("metadata")).get("raw")
    more = [as_object(part) for part in as_list(error.get("details"))]
    said += [part.get("reason") for part in more]
    details = [as_text(as_object(part).get("msg")) for part in as_list(inner)]
    return Complaint(
        tuple([value.lower() for value in said if isinstance(value, str)]),
        " ".join(filter(None, [as_text(error.get("message")), _behind(raw), *details])),
        next((code for code in codes if 400 <= code < 600), None),
        {name: as_count(error[name]) for name in ("n_prompt_tokens", "n_ctx") if name in error},
        next((wait for part in more if (wait := duration_s(as_text(part.get("retryDelay")))) is not None), None),
        plain(as_text(outer.get("request_id"))[:MAX_ID]) or None,
    )


def _behind(raw: object) -> str:
    """Return what the vendor behind a gateway said in *raw*: text, or another error body as text."""
    body = body_of(plain(raw).encode()) if isinstance(raw, str) else raw
    inner = as_object(body)
    return as_text(as_object(inner.get("error", inner)).get("message"))


def body_of(content: bytes) -> object:
    """Return the decoded error body *content*; text that is no JSON becomes its message."""
    # JSON says itself whether it is UTF-16, and some write a byte order mark in front of UTF-8.
    text = content.decode(json.detect_encoding(content), "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"message": text if not text.lstrip().startswith("<") else HTML}


def refusal(
    asked: Asked,
    body: object,
    *,
    status: int,
    headers: Mapping[str, str],
    now: Callable[[], float] = time.time,
) -> ProviderError:
    """Return the error that an answer stands for.

    Args:
        asked: Who was asked.
        body: The decoded error body, or the error event of a stream.
        status: The HTTP status; 200 where the error came inside a stream.
        headers: The answer's headers, by lower-case name.
        now: The wall clock in seconds, for dates in headers.
    """
    complaint = complaint_of(body)
    http = complaint.status if status < 400 and complaint.status else status
    context = asked.context(request_id=request_id(headers) or complaint.request_id, status=http)
    said = asked.clean(complaint.message) or f"HTTP {http}"
    where = f"{asked.provider}: {said}" + (f" (HTTP {http})" if said == HTML else "")
    wait_s = retry_after_s(headers, now())
    wait_s = complaint.retry_s if wait_s is None else wait_s
    error = _leaf(complaint, http, where, context, wait_s=wait_s)
    match headers.get("x-should-retry"):
        case "true" if isinstance(error, ProviderRefused):
            return _passing(f"{where}; the vendor says that it may work later", context, wait_s)
        case "false" if error.retryable:
            return ProviderRefused(f"{where}; the vendor says that trying again is no use", **context)
        case _:
            return error


def _leaf(
    complaint: Complaint, status: int, where: str, context: Mapping[str, Any], *, wait_s: float | None
) -> ProviderError:
    kinds = frozenset(complaint.kinds)
    if kinds & _OVERFLOW or (status in (400, 413, 422, 500) and _OVERFLOW_WORDS.search(complaint.message)):
        return _overflow(complaint, where, context)
    if kinds & _CREDITS or status == 402 or _drained(complaint, kinds, status, wait_s):
        return ProviderSetup(where, remedy="Add credits to the account, or raise its spending limit.", **context)
    if kinds & _KEY or status == 401:
        return ProviderSetup(where, remedy="Set a valid API key for this provider.", **context)
    if kinds & _FILTERED:
        return ProviderRefused(f"{where}; the vendor's filter stopped it: change the content", **context)
    if status == 407:
        return ProviderSetup(where, remedy="Give the proxy in front of the network its user and password.", **context)
    if kinds & _PERMISSION or status == 403:
        return ProviderSetup(where, remedy="Give the key's account access to this model.", **context)
    if kinds & _BUSY or status in (429, 529) or (status in (200, 503) and _BUSY_WORDS.search(complaint.message)):
        return ProviderBusy(f"{where}; lower the pool's `in_flight`", retry_after_s=wait_s, **context)
    if not kinds & _INVALID and (kinds & _UNAVAILABLE or status in _PASSING or status >= 500):
        return _passing(f"{where}; try again or another provider", context, wait_s)
    if not kinds and status in _ELSEWHERE:
        return ProviderRefused(f"{where}; check that the base URL is right", **context)
    return ProviderRefused(f"{where}; change the request", **context)


def _drained(complaint: Complaint, kinds: frozenset[str], status: int, wait_s: float | None) -> bool:
    """Say whether the words of *complaint* are about money: those of a limit that is over soon may name it, too."""
    soon = "rate_limit_exceeded" in kinds or wait_s is not None
    return status in (200, 400, 403, 429) and not soon and _CREDIT_WORDS.search(complaint.message) is not None


def _passing(message: str, context: Mapping[str, Any], wait_s: float | None) -> ProviderError:
    """Return what a failure is that may be over soon: the vendor is busy where it says for how long."""
    if wait_s is None:
        return ProviderUnavailable(message, **context)
    return ProviderBusy(message, retry_after_s=wait_s, **context)


def _overflow(complaint: Complaint, where: str, context: Mapping[str, Any]) -> ContextOverflow:
    numbers, text = complaint.numbers, complaint.message.replace(",", "")
    return ContextOverflow(
        f"{where}; shorten the prompt, ask for a shorter reply, or use a model with a larger window",
        prompt_tokens=numbers.get("n_prompt_tokens") or _number(_PROMPT, text),
        reply_tokens=_number(_REPLY, text),
        window_tokens=numbers.get("n_ctx") or _number(_WINDOW, text),
        **context,
    )


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    digits = "" if found is None else next(filter(None, found.groups()))
    return int(digits) if 0 < len(digits) <= _MOST_DIGITS else None


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the vendor's id of the request; `None` where the answer names none."""
    named = headers.get("x-request-id") or headers.get("request-id") or headers.get("apim-request-id")
    return named and named[:MAX_ID]


def duration_s(text: str) -> float | None:
    """Return the seconds that *text*, such as `6m0s` or `34s`, stands for; `None` where it stands for none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds, millis = [float(part or 0) for part in found.groups()]
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return how many seconds the vendor asks us to wait, 0 or more; `None` where it does not say.

    Args:
        headers: The answer's headers, by lower-case name.
        now_s: The wall clock, in seconds since 1970.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            wait_s = float(value) * unit_s
        except ValueError:
            wait_s = _seconds_until(value, now_s)
        if math.isfinite(wait_s):
            return max(wait_s, 0.0)
    return None


def _seconds_until(date: str, now_s: float) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - now_s
    except (OverflowError, ValueError):
        return math.nan
