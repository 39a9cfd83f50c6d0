"""Who speaks when, and that each tool use has its result: A2 to A6, A12, A13."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import cast

from shoal.testing.wire._anthropic._request import RESULTS_OF_SERVER, Piece, Request, Run, canonical
from shoal.testing.wire._rules import Violation, warning


def a2(request: Request) -> Iterator[Violation]:
    """The first message is the user's; neighbours of one role are merged, but better not sent."""
    if request.messages[0]["role"] == "assistant":
        yield Violation("A2", "messages.0", 'messages: first message must use the "user" role')
    for run in request.runs:
        if run.first != run.last:
            path = f"messages.{run.last}"
            yield warning("A2", path, f"{path}: messages of role {run.role!r} follow each other and are merged")


def a3(request: Request) -> Iterator[Violation]:
    """Each tool use is answered in the next message."""
    turns = spoken(request)
    for number, run in enumerate(turns):
        answered = results_of(turns[number + 1]) if number + 1 < len(turns) else []
        open_ids = [use for use in uses_of(run) if use not in answered]
        if open_ids:
            path = f"messages.{run.last}"
            yield Violation(
                "A3",
                path,
                f"{path}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(open_ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message.",
            )


def a4(request: Request) -> Iterator[Violation]:
    """Each result answers a tool use of the message before, once; ids are not used twice."""
    before: list[str] = []
    for run in spoken(request):
        seen: set[str] = set()
        for piece in run.of("tool_result"):
            use = cast("str", piece.block["tool_use_id"])
            if use not in before:
                yield Violation(
                    "A4",
                    piece.path,
                    f"{piece.path}: unexpected `tool_use_id` found in `tool_result` blocks: {use}. Each `tool_result` "
                    "block must have a corresponding `tool_use` block in the previous message.",
                )
            elif use in seen:
                what = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {use}"
                yield Violation("A4", piece.path, f"{piece.path}: {what}")
            seen.add(use)
        before = uses_of(run)
    yield from _used_twice(request)


def _used_twice(request: Request) -> Iterator[Violation]:
    known: set[str] = set()
    for piece in request.pieces:
        if piece.kind == "tool_use":
            use = cast("str", piece.block["id"])
            if use in known:
                yield Violation("A4", f"{piece.path}.id", f"{piece.path}.id: `tool_use` ids must be unique: {use}")
            known.add(use)


def a5(request: Request) -> Iterator[Violation]:
    """Results come first in their message; beside a server tool that is at work, nothing else comes at all."""
    for before, run in itertools.pairwise(spoken(request)):
        if run.role != "user":
            continue
        kinds = [piece.kind for piece in run.pieces]
        last = max((number for number, kind in enumerate(kinds) if kind == "tool_result"), default=-1)
        late = next((piece for piece in run.pieces[: last + 1] if piece.kind != "tool_result"), None)
        pending = pending_server_tools(before)
        if pending and (extra := next((piece for piece in run.pieces if piece.kind != "tool_result"), None)):
            what = f"only `tool_result` blocks may follow while the server tool {pending[0]} is at work"
            yield Violation("A5", extra.path, f"{extra.path}: {what}")
        elif late is not None:
            yield Violation("A5", late.path, f"{late.path}: `tool_result` blocks must come first in their message")


def a6(request: Request) -> Iterator[Violation]:
    """Behind the first tool use of a turn that ends on one comes nothing but tool uses."""
    for run in request.runs:
        kinds = [piece.kind for piece in run.pieces]
        if "tool_use" not in kinds or kinds[-1] != "tool_use":
            continue
        for piece in run.pieces[kinds.index("tool_use") :]:
            if piece.kind != "tool_use":
                yield Violation(
                    "A6", piece.path, f"{piece.path}: a {piece.kind!r} block stands between `tool_use` blocks"
                )


def a12(request: Request) -> Iterator[Violation]:
    """A system message within the conversation: where it may stand, and which models take it."""
    roles = [cast("str", message["role"]) for message in request.messages]
    for number, run in enumerate(request.runs):
        if run.role != "system":
            continue
        path = f"messages.{run.first}"
        if not request.model.mid_system:
            yield Violation("A12", path, f"{path}: role 'system' is not supported by {request.model.name}")
            continue
        before = request.runs[number - 1] if number else None
        after = roles[run.last + 1] if run.last + 1 < len(roles) else "assistant"
        if problem := _misplaced(before, after):
            yield Violation("A12", path, f"{path}: a 'system' message {problem}")


def _misplaced(before: Run | None, after: str) -> str | None:
    if before is None:
        return "must not be the first; use the top-level `system` parameter"
    if uses_of(before):
        return "must not stand between `tool_use` blocks and their results"
    ends_on_server = before.role == "assistant" and before.pieces and before.pieces[-1].kind.endswith(RESULTS_OF_SERVER)
    if before.role != "user" and not ends_on_server:
        return "must directly follow a 'user' message"
    if after != "assistant":
        return "must be the last or be followed by an 'assistant' message"
    return None


def a13(request: Request) -> Iterator[Violation]:
    """Newer models do not go on from a reply that the client began."""
    run = request.runs[-1]
    if run.role != "assistant" or uses_of(run) or request.model.prefill:
        return
    if pending_server_tools(run) or turn_key(run.pieces) in request.memory.paused:
        return
    yield Violation(
        "A13",
        f"messages.{run.last}",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )


def spoken(request: Request) -> list[Run]:
    """Return the runs of user and assistant."""
    return [run for run in request.runs if run.role != "system"]


def uses_of(run: Run) -> list[str]:
    """Return the ids of the tools that *run* wants run."""
    return [cast("str", piece.block["id"]) for piece in run.of("tool_use")]


def results_of(run: Run) -> list[str]:
    """Return the ids that the results in *run* answer."""
    return [cast("str", piece.block["tool_use_id"]) for piece in run.of("tool_result")]


def pending_server_tools(run: Run) -> list[str]:
    """Return the ids of server tools that *run* started and that have no result in it."""
    done = {piece.block.get("tool_use_id") for piece in run.pieces if piece.kind.endswith(RESULTS_OF_SERVER)}
    started = [cast("str", piece.block["id"]) for piece in run.of("server_tool_use")]
    return [use for use in started if use not in done]


def turn_key(pieces: tuple[Piece, ...]) -> str:
    """Return what a turn is remembered by."""
    return "\n".join(canonical(piece.block) for piece in pieces)
