"""What a response makes the model read, block by block."""

from __future__ import annotations

from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._openai._chat_prompt import marker_of, tier_of
from shoal.testing.wire._openai._media_tokens import FILE, image_tokens
from shoal.testing.wire._openai._responses_request import CALLS, OUTPUTS, Item, Request, parts_of, sealed_facts
from shoal.testing.wire._openai._responses_rules import withheld
from shoal.testing.wire._prompt import Block, Prompt
from shoal.testing.wire._tokens import compact, count, utf8

TIERS = ("tools", "format", "instructions", "messages")


def prompt(request: Request, scope: str) -> tuple[Prompt, list[int]]:
    """Return what *request* makes the model read, and the positions of the last block of each item."""
    blocks = [
        Block(f"tools[{number}]", "tools", utf8(compact(tool)), count(compact(tool)))
        for number, tool in enumerate(request.tools)
    ]
    if request.format.get("type") == "json_schema":
        text = compact(request.format)
        blocks.append(Block("text.format", "format", utf8(text), count(text)))
    if instructions := request.body.get("instructions"):
        blocks.append(Block("instructions", "instructions", utf8(instructions), count(instructions)))
    ends: list[int] = []
    turn = _turn(request)
    for place, item in enumerate(request.items):
        if item.kind == "reasoning" and (withheld(item, request) or place < turn):
            continue
        made = item_blocks(item, request)
        blocks += made
        ends += [len(blocks) - 1] if made else []
    tier = tier_of(request.body) if request.model.breakpoints else ""
    return Prompt(request.model.name, scope, tuple(blocks), dict.fromkeys(TIERS, tier)), ends


def _turn(request: Request) -> int:
    """Return where reasoning begins to be read: at the current turn, if the request says so."""
    if obj(request.body.get("reasoning")).get("context") != "current_turn":
        return 0
    return max((place for place, item in enumerate(request.items) if item.value.get("role") == "user"), default=0)


def item_blocks(item: Item, request: Request) -> list[Block]:
    """Return the blocks of one item."""
    path, value = item.path, item.value
    if item.kind == "message":
        found = parts_of(value["content"], f"{path}.content" if isinstance(value["content"], list) else path)
        return [_part(part_path, part, value["role"], marked=True) for part_path, part in found]
    if item.kind == "reasoning":
        return [_reasoning(item, request)]
    if item.kind in CALLS:
        given = value.get("arguments", value.get("input", ""))
        data = utf8(compact([value["call_id"], value["name"], given]))
        return [Block(path, "messages", data, count(value["name"]) + count(given), b"call")]
    if item.kind in OUTPUTS:
        # A marker here is taken and does nothing.
        return [
            _part(part_path, part, "output", marked=False)
            for part_path, part in parts_of(value["output"], f"{path}.output")
        ]
    text = compact(value)
    return [Block(path, "messages", utf8(text), count(text), item.kind.encode())]


def _reasoning(item: Item, request: Request) -> Block:
    facts = sealed_facts(request.seals, item.value)
    known = request.memory.items.get(item.item_id or "")
    thought: Json = facts or (known.value if known else {})
    tokens = thought.get("tokens", count(compact(item.value.get("summary"))))
    return Block(item.path, "messages", utf8(str(item.item_id)), tokens, b"reasoning")


def _part(path: str, part: Json, role: str, *, marked: bool) -> Block:
    kind = part["type"].replace("output_text", "input_text")
    marker = marker_of(part) if marked else None
    frame = f"{role} {kind}".encode()
    if kind in ("input_text", "refusal"):
        text = part.get("text", part.get("refusal", ""))
        return Block(path, "messages", utf8(text), count(text), frame, marker)
    bare = compact({key: part[key] for key in part if key != "prompt_cache_breakpoint"})
    tokens = image_tokens(part.get("image_url"), part.get("detail")) if kind == "input_image" else FILE
    return Block(path, "messages", utf8(bare), tokens, frame, marker)
