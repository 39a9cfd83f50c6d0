"""Calls and their outputs (R1), reasoning and what follows it (R2), ids and encrypted content (R3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from shoal.testing.wire._json import Json
from shoal.testing.wire._openai._chat_rules import too_long
from shoal.testing.wire._openai._responses_request import CALLS, OUTPUTS, Item, Memory, Request, sealed_facts
from shoal.testing.wire._rules import Violation, warning
from shoal.testing.wire._seal import digest
from shoal.testing.wire._tokens import compact

ID_LIMIT = 64
UNKEPT = (
    " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item "
    "from your input."
)
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}


def r1(request: Request) -> Iterator[Violation]:
    """Each output answers a call, each call is answered before the model is told anything else."""
    open_calls: dict[str, Item] = {}
    answered: set[str] = set()
    for item in request.items:
        call_id = cast("str", item.value.get("call_id") or "")
        if item.kind in CALLS:
            yield from _length(call_id, item)
            if call_id in open_calls or call_id in answered:
                yield Violation("R1", f"{item.path}.call_id", f"Duplicate call_id '{call_id}' found in input.")
            open_calls[call_id] = item
        elif item.kind in OUTPUTS:
            if call_id in open_calls:
                answered.add(call_id)
                del open_calls[call_id]
            else:
                what = "more than once" if call_id in answered else "without a call"
                yield Violation(
                    "R1", item.path, f"No tool call found for function call output with call_id {call_id} ({what})."
                )
        elif item.kind == "message" and not item.by_model:
            yield from _unanswered(open_calls)
            open_calls = {}
    yield from _unanswered(open_calls)


def _length(call_id: str, item: Item) -> Iterator[Violation]:
    if not 0 < len(call_id) <= ID_LIMIT:
        path = f"{item.path}.call_id"
        yield Violation("R1", path, too_long(path, call_id, ID_LIMIT))


def _unanswered(open_calls: dict[str, Item]) -> Iterator[Violation]:
    for call_id in open_calls:
        yield Violation("R1", "input", f"No tool output found for function call {call_id}.")


def r2(request: Request) -> Iterator[Violation]:
    """Reasoning stands in front of what came of it."""
    items = request.items
    for place, item in enumerate(items):
        if item.kind == "reasoning":
            if not _followed(item, items[place + 1 :], request):
                what = f"Item '{item.item_id}' of type 'reasoning' was provided without its required following item."
                yield Violation("R2", item.path, what)
            continue
        known = request.memory.items.get(item.item_id or "")
        if (
            known is not None
            and known.reasoning
            and not _led(items[:place], known.reasoning, known.response_id, request)
        ):
            yield Violation(
                "R2",
                item.path,
                f"Item '{item.item_id}' of type '{item.kind}' was provided without its required 'reasoning' item: "
                f"'{known.reasoning}'.",
            )


def _followed(reasoning: Item, behind: tuple[Item, ...], request: Request) -> bool:
    """Say whether what came of *reasoning* stands right *behind* it."""
    if not behind or not behind[0].by_model:
        return False
    follower = behind[0]
    facts = sealed_facts(request.seals, reasoning.value)
    if follower.kind == "reasoning":
        return True
    if facts is not None:
        return bool(facts["follower"] == fingerprint(follower.value))
    known = request.memory.items.get(follower.item_id or "")
    return known is None or known.reasoning == reasoning.item_id


def _led(before: tuple[Item, ...], reasoning: str, response_id: str, request: Request) -> bool:
    """Say whether *reasoning* stands in front, with nothing between but items of the same response."""
    for item in reversed(before):
        if item.item_id == reasoning:
            return True
        known = request.memory.items.get(item.item_id or "")
        if known is None or known.response_id != response_id:
            return False
    return False


def fingerprint(item: Json) -> str:
    """Return what an item of the model is known by, with or without its id, and whatever id its call has now."""
    if item.get("type") == "function_call":
        return digest("function_call", item["name"], item["arguments"])
    content = item.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", part.get("refusal")) for part in content or ()]
    if item.get("role") == "assistant":
        return digest("message", *(str(text) for text in texts))
    return digest(compact({key: item[key] for key in item if key not in ("id", "status")}))


def r3(request: Request) -> Iterator[Violation]:
    """Ids are this server's, and what is not kept comes back encrypted and unchanged."""
    for item in request.own_items:
        if item.reference is not None:
            if request.memory.kept(item.reference) is None:
                yield _not_found(item, request)
        elif item.kind == "reasoning":
            yield from _reasoning(item, request)
        elif item.item_id and item.kind in PREFIXES:
            yield from _known_id(item, request.memory)


def _known_id(item: Item, memory: Memory) -> Iterator[Violation]:
    prefix = PREFIXES[item.kind]
    path = f"{item.path}.id"
    if not cast("str", item.item_id).startswith(f"{prefix}_"):
        what = f"Invalid '{path}': '{item.item_id}'. Expected an ID that begins with '{prefix}'."
        yield Violation("R3", path, what)
    elif item.item_id not in memory.items:
        yield Violation("R3", path, f"Item with id '{item.item_id}' not found.")


def _reasoning(item: Item, request: Request) -> Iterator[Violation]:
    encrypted = item.value.get("encrypted_content")
    if encrypted is None:
        if request.memory.kept(item.item_id) is None:
            yield _not_found(item, request)
        return
    facts = sealed_facts(request.seals, item.value)
    summary = [part["text"] for part in item.value["summary"]]
    if facts is None or facts["id"] != item.item_id or facts["summary"] != summary:
        what = "Encrypted content could not be decrypted or parsed."
        path = f"{item.path}.encrypted_content"
        yield Violation(
            "R3", path, f"The encrypted content for item {item.item_id} could not be verified. Reason: {what}"
        )
    elif why := withheld(item, request):
        yield warning("R3", item.path, f"Item '{item.item_id}' is withheld from the model: {why}")


def withheld(item: Item, request: Request) -> str | None:
    """Return why the model does not see a reasoning item; `None` if it does."""
    facts = sealed_facts(request.seals, item.value)
    if facts is not None and facts["key"] != digest(request.key):
        return "organization_mismatch"
    if facts is not None and facts["model"] != request.model.name:
        return "model_mismatch"
    return None


def _not_found(item: Item, request: Request) -> Violation:
    why = UNKEPT if item.item_id in request.memory.items else ""
    return Violation("R3", item.path, f"Item with id '{item.item_id}' not found.{why}")
