"""A server without its sockets, and bodies to send to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.testing import wire
from shoal.testing.wire._delivery import Data, Head, Reply, Step, steps
from shoal.testing.wire._engine import World
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._vendors import engine

ANTHROPIC = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
OPENAI = {"authorization": "Bearer k"}
GEMINI = {"x-goog-api-key": "k"}


def says(text: str = "ok") -> wire.Brain:
    return wire.Script(last=text)


@dataclass
class Got:
    """What a request got."""

    exchange: Exchange
    reply: Reply
    steps: tuple[Step, ...]

    @property
    def json(self) -> Any:
        return json.loads(self.reply.body)

    @property
    def events(self) -> list[Any]:
        assert self.reply.events is not None
        return [json.loads(event.data) for event in self.reply.events if event.data != "[DONE]"]

    @property
    def bytes(self) -> bytes:
        return b"".join(step.data for step in self.steps if isinstance(step, Data))

    @property
    def head(self) -> Head:
        return next(step for step in self.steps if isinstance(step, Head))

    @property
    def rules(self) -> list[str]:
        """The rules for which it was refused, each once."""
        return list(dict.fromkeys(found.rule for found in self.exchange.violations if found.enforced))

    @property
    def warnings(self) -> list[str]:
        return list(dict.fromkeys(found.rule for found in self.exchange.violations if not found.enforced))


@dataclass
class Desk:
    """Takes requests as a server does, at the time of *clock*."""

    brain: wire.Brain = field(default_factory=says)
    settings: wire.Settings = field(default_factory=wire.Settings)
    clock: wire.ManualClock = field(default_factory=wire.ManualClock)

    def __post_init__(self) -> None:
        self.world = World(self.settings, self.clock)
        self.engine = engine(self.world, self.brain)

    @property
    def ledger(self) -> wire.Ledger:
        return self.world.ledger

    def send(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        ready_s: float | None = None,
    ) -> Got:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        incoming = Incoming(method, path, query or {}, headers or {}, raw)
        exchange = self.world.journal.open(incoming, self.clock())
        answer = self.engine.serve(exchange)
        answer.started(self.clock() if ready_s is None else ready_s)
        exchange.whole = True
        self.engine.settle(exchange)
        return Got(exchange, answer.reply, steps(answer.reply, answer.faults))

    def anthropic(
        self, body: Any, *, betas: str = "", version: str = "2023-06-01", ready_s: float | None = None
    ) -> Got:
        headers = {**ANTHROPIC, "anthropic-version": version, "anthropic-beta": betas}
        return self.send("/v1/messages", body, headers, ready_s=ready_s)


# --- Anthropic


def user(*content: Any) -> dict[str, Any]:
    """A message; one string is its content, several are text blocks."""
    if len(content) == 1 and isinstance(content[0], str):
        return {"role": "user", "content": content[0]}
    return {"role": "user", "content": [text(part) if isinstance(part, str) else part for part in content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def text(said: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(name: str = "f", use_id: str = "toolu_1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": use_id, "name": name, "input": given}


def result(use_id: str = "toolu_1", content: Any = "42", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": use_id, "content": content, **more}


def tool(name: str = "f", **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    return {"name": name, "description": "does f", "input_schema": schema, **more}


def message(*messages: Any, model: str = "claude-opus-4-8", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 1000, "messages": list(messages) or [user("hi")], **more}


def image(raw: bytes, media_type: str = "image/png") -> dict[str, Any]:
    data = base64.b64encode(raw).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def png(width: int = 28, height: int = 28) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"


def pdf(pages: int = 1, extra: bytes = b"") -> dict[str, Any]:
    raw = b"%PDF-1.7\n/Type /Pages\n" + b"/Type /Page\n" * pages + extra
    return {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(raw).decode()},
    }
