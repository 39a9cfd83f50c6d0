"""A key is in nothing that is written down, whatever a vendor says back."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shoal
from shoal.blueprints import Blueprint, CallerSeed, Region, Stage
from shoal.errors import ProviderError, RunIsPaused
from shoal.observability import exporting, logs
from shoal.providers import (
    Request,
    RetryPolicy,
    VendorProvider,
    anthropic,
    codex,
    compatible,
    google,
    openai,
    openai_chat,
)
from shoal.runtime import virtual

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
PASSWORD = "a-password-in-a-url"
HEADER = "a-token-in-a-header"
MORE = {"x-proxy-token": HEADER}
MODEL = "claude-opus-4-8"
TALK = Blueprint(
    "talk",
    (Stage("talk", available_tools=()),),
    regions=(Region("task", kind="pinned", seed=CallerSeed("task")),),
)
MAKERS: dict[str, Callable[[httpx.AsyncBaseTransport], VendorProvider]] = {
    "anthropic": lambda http: anthropic(KEY, headers=MORE, http=http),
    "anthropic with a bearer": lambda http: anthropic(KEY, auth="bearer", headers=MORE, http=http),
    "openai": lambda http: openai(KEY, headers=MORE, http=http),
    "openai-chat": lambda http: openai_chat(KEY, headers=MORE, http=http),
    "codex": lambda http: codex(KEY, headers=MORE, http=http),
    "google": lambda http: google(KEY, headers=MORE, http=http),
    "azure": lambda http: compatible("http://there/v1", api_key=KEY, capabilities="azure", headers=MORE, http=http),
    "a bearer of one's own": lambda http: compatible(
        "http://there/v1", headers={"authorization": f"Bearer {KEY}", **MORE}, http=http
    ),
    "a user of a URL": lambda http: compatible(f"http://{KEY}@there/v1", headers=MORE, http=http),
    "a password": lambda http: compatible(f"http://me:{PASSWORD}@there/v1", headers=MORE, http=http),
}


def said_back(request: httpx.Request) -> str:
    """What a careless server repeats: where it was asked, every header, and every word in one."""
    words = [quote(value.split()[-1], safe="") for value in request.headers.values()]
    return f"{request.url} {words} {json.dumps(dict(request.headers))}"


def refusing(request: httpx.Request) -> httpx.Response:
    return httpx.Response(401, json={"error": {"type": "authentication_error", "message": said_back(request)}})


def crashing(request: httpx.Request) -> httpx.Response:
    return httpx.Response(500, text=said_back(request), headers={"x-request-id": "r-1"})


def breaking_off(request: httpx.Request) -> httpx.Response:
    error = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": said_back(request)}})
    return httpx.Response(200, text=f"event: error\ndata: {error}\n\n", headers={"content-type": "text/event-stream"})


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(f"no way to {said_back(request)}")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("server", [refusing, crashing, breaking_off, unreachable])
async def test_no_key_is_in_any_log_error_span_or_event(
    maker: str,
    server: Callable[[httpx.Request], httpx.Response],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
):
    caplog.set_level("DEBUG")
    provider = MAKERS[maker](httpx.MockTransport(server))
    lines, spans = io.StringIO(), InMemorySpanExporter()
    telemetry = exporting(spans)
    written = [repr(provider)]
    async with shoal.Swarm(
        [provider],
        journal=tmp_path / "runs.db",
        observers=[logs(lines, level="debug")],
        telemetry=telemetry,
        retry=RetryPolicy(attempts=2),
        clock=virtual(seed=0),
    ) as swarm:
        run = await swarm.spawn(TALK, task="x", model=f"{provider.name}:{MODEL}")
        try:
            written.append(repr(await run.result()))
        except RunIsPaused as paused:
            written.append("".join(traceback.format_exception(paused)))
        written += [
            repr(swarm),
            repr(run),
            str(run.ledger()),
            *[repr(event) for event in swarm.journal.read(run.run_id)],
        ]
    written += [await failure(provider, how) for how in ("stream", "count", "discover")]
    await provider.aclose()
    telemetry.close()
    written += [span.to_json() for span in spans.get_finished_spans()]
    assert "Provider" in str([span.attributes for span in spans.get_finished_spans()])
    assert "Provider" in lines.getvalue()
    written += [lines.getvalue(), caplog.text, *capfd.readouterr()]
    written += on_disk(tmp_path)
    assert [secret for secret in (KEY, PASSWORD, HEADER) if any(secret in text for text in written)] == []


def on_disk(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.iterdir()]


async def failure(provider: VendorProvider, how: str) -> str:
    """Return what an error says of itself, with all that it came from."""
    request = Request(MODEL)
    try:
        match how:
            case "stream":
                async for _ in provider.stream(request):
                    pass
            case "count":
                await provider.count_tokens(request)
            case _:
                await provider.discover(MODEL)
    except ProviderError as error:
        return "".join(traceback.format_exception(error)) + repr(vars(error))
    return ""
