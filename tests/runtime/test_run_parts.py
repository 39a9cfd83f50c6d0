"""Stored parts in runs: how they come in, where they go, and what is left of them when a run goes on elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from runkit import NOTES, TALK, TASK, blueprint, edge, events_of, folded, payloads, run_once, stage, swarm_of

from shoal.blueprints import (
    CallerSeed,
    FilesSeed,
    GlobSeed,
    Region,
    Stage,
    StageContext,
    ToolRouting,
    ToolSeedCall,
    ToolsSeed,
)
from shoal.errors import ConfigInvalid, PartMissing, PartRefused, SpawnRefused
from shoal.providers import Blob, ModelProfile, Provider, Request, anthropic, google, openai, openai_chat
from shoal.runtime import Attachment, Limits, MemoryJournal, Run, SqliteJournal, Swarm, ToolResult, tool
from shoal.runtime._attachment import attachments
from shoal.runtime._routed_parts import region_of
from shoal.testing import Say, ScriptedProvider, call, wire

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (64).to_bytes(4, "big") + (48).to_bytes(4, "big") + b"\x08\x02"
GIF = b"GIF89a\x10\0\x10\0"
PDF = b"%PDF-1.7 /Type /Page"
LINE = f"[image/png 64x48, {len(PNG)} bytes]"
EYES = ModelProfile("m", 200_000, 8_192, input_types=("text/*", "image/*"), counts_parts="claude")
ART = Region("art", kind="pinned", max_tokens=3_000, accepts=("image/*",))
PLAIN = (TASK, NOTES, TALK)
SLOW = Say("first", delay_s=10.0)


def seeing(*replies: Any, **more: Any) -> ScriptedProvider:
    """Return a provider of a model that takes images."""
    return ScriptedProvider(*replies, profile=EYES, purposes={"titling": "A title"}, **more)


def shown(request: Request) -> list[Blob]:
    """Return the stored parts of *request*, in order."""
    return [blob for segment in request.messages for message in segment.messages for blob in message.blobs]


def asked(provider: ScriptedProvider) -> list[Request]:
    return [request for request in provider.requests if request.purpose == "stage"]


def texts(request: Request) -> str:
    """Return what *request* says, system section and messages."""
    said = [message.text for segment in request.messages for message in segment.messages]
    return "\n".join([*[block.text for block in request.system], *said])


def names(blobs: Sequence[Blob]) -> list[str]:
    return [blob.name for blob in blobs]


def pictures(folder: Path) -> Path:
    for name, data in {"b.png": PNG, "a.gif": GIF, "note.txt": b"words", "doc.pdf": PDF, "odd.bin": b"\0\1"}.items():
        (folder / name).write_bytes(data)
    return folder


def seeded(seed: Any, **more: Any) -> Any:
    region = Region("art", kind=more.pop("kind", "pinned"), max_tokens=3_000, seed=seed, **more)
    return blueprint(stage(), regions=(*PLAIN, region))


# --- seeds


async def test_files_that_are_no_text_are_seeds_under_their_path(tmp_path: Path):
    provider = seeing("seen")
    made = seeded(FilesSeed(("b.png", "note.txt", "odd.bin")))
    await run_once(made, provider, workdir=pictures(tmp_path))
    request = asked(provider)[0]
    said = f"--- b.png ---\n{LINE} b.png\n\n--- note.txt ---\nwords\n\n--- odd.bin ---\n[application/octet-stream, "
    assert said in texts(request)
    assert (names(shown(request)), shown(request)[0].load()) == (["b.png"], PNG)


async def test_every_match_of_a_glob_is_a_part_in_sorted_order(tmp_path: Path):
    provider = seeing("seen")
    await run_once(seeded(GlobSeed("*.[pg][ni][gf]")), provider, workdir=pictures(tmp_path))
    assert names(shown(asked(provider)[0])) == ["a.gif", "b.png"]


async def test_a_seed_file_above_the_limit_is_left_out_with_a_note(tmp_path: Path):
    made = seeded(FilesSeed(("b.png", "a.gif")))
    _, events = await run_once(made, seeing("seen"), workdir=pictures(tmp_path), limits=Limits(part_bytes=20))
    [resolved] = [each for each in payloads(events, "SeedResolved") if each.region == "art"]
    assert [block.name for block in resolved.blocks] == ["a.gif"]
    assert resolved.notes == (
        "the part 'b.png' holds 26 bytes and at most 20 are kept; send a smaller one, or raise the limit `part_bytes`",
    )


async def test_what_a_region_does_not_take_is_left_out_of_its_seed(tmp_path: Path):
    _, events = await run_once(
        seeded(GlobSeed("*"), accepts=("application/pdf",)), seeing("seen"), workdir=pictures(tmp_path)
    )
    [resolved] = [each for each in payloads(events, "SeedResolved") if each.region == "art"]
    assert [block.name for block in resolved.blocks] == ["doc.pdf"]
    assert len(resolved.notes) == 4


async def test_a_required_region_that_takes_nothing_of_its_seed_refuses_the_spawn(tmp_path: Path):
    made = seeded(FilesSeed(("b.png",)), accepts=("text/*",), required=True)
    with pytest.raises(SpawnRefused, match=r"'art' cannot stand there: b.png is left out: the region takes text/"):
        await run_once(made, seeing(), workdir=pictures(tmp_path))


async def test_a_checklist_leaves_parts_out_of_its_items(tmp_path: Path):
    made = seeded(FilesSeed(("b.png", "note.txt")), kind="checklist")
    _, events = await run_once(made, seeing("seen"), workdir=pictures(tmp_path))
    [resolved] = [each for each in payloads(events, "SeedResolved") if each.region == "art"]
    assert resolved.notes == ("b.png is left out: region 'art' is a checklist and takes items of text",)
    assert [str(item.note) for item in payloads(events, "ItemChanged")] == ["words"]


@pytest.mark.parametrize(
    ("value", "line", "count"),
    [
        (PNG, f"{LINE} image-1.png", 1),
        (Attachment(PNG, "hero.png"), f"{LINE} hero.png", 1),
        (["Look:", Attachment(PNG, "hero.png"), "Well?"], f"Look:\nWell?\n{LINE} hero.png", 1),
        ([PNG, GIF], f"{LINE} image-1.png\n[image/gif 16x16, 10 bytes] image-2.gif", 2),
    ],
)
async def test_a_caller_gives_parts_from_code(value: Any, line: str, count: int):
    provider = seeing("seen")
    _, events = await run_once(seeded(CallerSeed("art")), provider, seeds={"art": value})
    assert f"## art\n{line}" in texts(asked(provider)[0])
    assert len(shown(asked(provider)[0])) == count
    [(name, said)] = payloads(events, "RunSpawned")[0].seeds
    assert (name, "[image/png 64x48" in str(said)) == ("art", True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "'int' is no value for a region; give text, bytes, or a list of both"),
        ({"a": 1}, "'dict' is no value for a region"),
        ([PNG, 7], "'int' cannot be attached; give bytes, or an `Attachment`"),
        (Attachment(b"x" * 101, "big"), "the part 'big' holds 101 bytes and at most 100 are kept"),
        (b"\0", "the seed of region 'art' cannot stand there"),
    ],
)
async def test_a_value_that_is_of_no_use_refuses_the_spawn(value: Any, message: str):
    journal = MemoryJournal()
    async with swarm_of(seeing(), journal=journal, limits=Limits(part_bytes=100)) as swarm:
        with pytest.raises(SpawnRefused, match=message):
            await swarm.spawn(seeded(CallerSeed("art"), accepts=("image/*",)), task="t", seeds={"art": value})
    assert list(journal.runs()) == []


async def test_a_checklist_of_the_caller_takes_text_only():
    with pytest.raises(SpawnRefused, match="region 'art' is a checklist and takes items of text; give it no parts"):
        await run_once(seeded(CallerSeed("art"), kind="checklist"), seeing(), seeds={"art": PNG})


async def test_a_tool_seed_gives_parts():
    @tool(reads=True)
    async def camera() -> bytes:
        """Take a picture."""
        return PNG

    provider = seeing("seen")
    await run_once(seeded(ToolsSeed((ToolSeedCall("camera"),))), provider, tools=[camera])
    assert f"--- camera ---\n{LINE} image-1.png" in texts(asked(provider)[0])


async def test_a_tool_seed_whose_part_is_too_large_is_left_out():
    @tool(reads=True)
    async def camera() -> bytes:
        """Take a picture."""
        return PNG

    made = seeded(ToolsSeed((ToolSeedCall("camera"),)))
    _, events = await run_once(made, seeing("seen"), tools=[camera], limits=Limits(part_bytes=20))
    [resolved] = [each for each in payloads(events, "SeedResolved") if each.region == "art"]
    assert "camera: [error] the part holds 26 bytes" in resolved.notes[0]


async def test_a_refresh_keeps_what_is_the_same_and_stores_what_is_new(tmp_path: Path):
    pictures(tmp_path)
    rounds = iter([PNG, GIF])

    @tool
    async def swap() -> str:
        """Put another picture there."""
        (tmp_path / "b.png").write_bytes(next(rounds))
        return "swapped"

    seed = FilesSeed(("b.png",), refresh="each_stage")
    one = Stage("one", available_tools=("swap",), transitions=(edge("two"),))
    two = Stage("two", available_tools=("swap",), transitions=(edge("three"),))
    made = blueprint(
        one,
        two,
        Stage("three"),
        regions=(
            *PLAIN,
            Region("art", kind="pinned", max_tokens=3_000, seed=seed),
        ),
    )
    provider = seeing(call("swap"), "one", call("swap"), "two", "three")
    _, events = await run_once(made, provider, workdir=tmp_path, tools=[swap])
    assert [part.name for part in payloads(events, "PartStored")] == ["b.png", "b.png (2)"]
    assert len(payloads(events, "SeedRefreshed")) == 1
    assert names(shown(asked(provider)[-1])) == ["b.png (2)"]


# --- tools


def lens(returned: Any) -> Any:
    @tool(reads=True)
    async def look() -> Any:
        """Look."""
        return returned

    return look


@pytest.mark.parametrize(
    ("returned", "text", "count"),
    [
        (PNG, "", 1),
        (bytearray(PNG), "", 1),
        (Attachment(PNG, "hero.png"), "", 1),
        (["Two:", PNG, GIF, {"a": 1}], 'Two:\n{"a":1}', 2),
        ((PNG,), "", 1),
        (ToolResult.of("See."), "See.", 0),
        (["no", "parts"], '["no","parts"]', 0),
    ],
)
async def test_a_function_returns_parts(returned: Any, text: str, count: int):
    provider = seeing(call("look"), "seen")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(returned)])
    [completed] = payloads(events, "ToolCallCompleted")
    assert (str(completed.text), len(completed.parts)) == (text, count)
    [request] = asked(provider)[1:]
    result = request.messages[-1].messages[-1]
    assert (result.role, result.text, len(result.blobs)) == ("tool", text, count)


async def test_the_same_bytes_are_stored_once():
    provider = seeing(call("look"), call("look"), "seen")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(PNG)])
    assert len(payloads(events, "PartStored")) == 1
    assert [each.parts for each in payloads(events, "ToolCallCompleted")] == [payloads_seq(events)] * 2


def payloads_seq(events: Sequence[Any]) -> tuple[int, ...]:
    return tuple([event.seq for event in events if event.kind == "PartStored"])


async def test_a_part_that_is_too_large_is_an_error_that_the_model_reads():
    provider = seeing(call("look"), "seen")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(PNG)], limits=Limits(part_bytes=20))
    [completed] = payloads(events, "ToolCallCompleted")
    assert completed.is_error
    assert str(completed.text).startswith("[error] the part holds 26 bytes and at most 20 are kept")


async def test_a_text_that_is_too_long_is_stored_and_its_beginning_shown():
    limits = Limits(result_bytes=100, read_bytes=40)
    provider = seeing(call("look"), "seen")
    async with swarm_of(provider, limits=limits) as swarm:
        run = await swarm.spawn(blueprint(stage()), task="t", tools=[lens("é" * 100)])
        await run.result()
        [completed] = payloads(events_of(swarm, run), "ToolCallCompleted")
        assert str(completed.text) == (
            "é" * 20 + "\n[cut: the whole result, 200 bytes, is the stored part 'look-result.txt']"
        )
        assert completed.parts == ()
        assert (await run.part("look-result.txt")).decode() == "é" * 100


async def test_a_long_text_stands_behind_the_parts_that_come_with_it():
    limits = Limits(result_bytes=10)
    provider = seeing(call("look"), "seen")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(["long " * 9, PNG])], limits=limits)
    [completed] = payloads(events, "ToolCallCompleted")
    assert [part.name for part in payloads(events, "PartStored")] == ["image-1.png", "look-result.txt"]
    assert completed.parts == payloads_seq(events)[:1]


@pytest.mark.parametrize(
    ("path", "parts", "said"),
    [
        ("b.png", ["b.png"], ""),
        ("doc.pdf", ["doc.pdf"], ""),
        ("note.txt", [], "words"),
        ("odd.bin", [], "[error] 'odd.bin' is binary (2 bytes), not text"),
    ],
)
async def test_a_file_is_read_as_what_it_is(tmp_path: Path, path: str, parts: list[str], said: str):
    provider = seeing(call("read_file", path=path), "seen")
    made = blueprint(stage(available_tools=("read_file",)))
    await run_once(made, provider, workdir=pictures(tmp_path))
    result = asked(provider)[1].messages[-1].messages[-1]
    assert (names(result.blobs), result.text) == (parts, said)


async def test_an_image_under_the_name_of_a_text_is_an_image(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(PNG)
    provider = seeing(call("read_file", path="a.txt"), "seen")
    await run_once(blueprint(stage(available_tools=("read_file",))), provider, workdir=tmp_path)
    assert shown(asked(provider)[1])[0].mime == "image/png"


async def test_several_files_are_read_each_as_what_it_is(tmp_path: Path):
    provider = seeing(call("read_files", paths=["b.png", "note.txt", "a.gif"]), "seen")
    await run_once(blueprint(stage(available_tools=("read_files",))), provider, workdir=pictures(tmp_path))
    result = asked(provider)[1].messages[-1].messages[-1]
    assert (names(result.blobs), result.text) == (["b.png", "a.gif"], "--- note.txt ---\nwords")


async def test_a_file_that_is_too_large_to_be_attached_is_not_read(tmp_path: Path):
    provider = seeing(call("read_file", path="b.png"), "seen")
    made = blueprint(stage(available_tools=("read_file",)))
    await run_once(made, provider, workdir=pictures(tmp_path), limits=Limits(part_bytes=20))
    said = "'b.png' holds 26 bytes and at most 20 are attached; raise `part_bytes`"
    assert said in texts(asked(provider)[1])


async def test_a_result_with_a_part_is_routed_and_the_pointer_says_so(tmp_path: Path):
    routing = ToolRouting(default_region="art")
    made = blueprint(stage(available_tools=("read_file",), tool_routing=routing), regions=(*PLAIN, ART))
    provider = seeing(call("read_file", path="b.png"), "seen")
    await run_once(made, provider, workdir=pictures(tmp_path))
    said = texts(asked(provider)[1])
    assert f"## art\n{LINE} b.png" in said
    assert 'is kept. It is already in this prompt, under "## art".]' in said
    assert names(shown(asked(provider)[1])) == ["b.png"]


async def test_a_region_that_does_not_take_a_result_refuses_it_and_the_pointer_says_why(tmp_path: Path):
    routing = ToolRouting(default_region="art")
    made = blueprint(stage(available_tools=("read_file",), tool_routing=routing), regions=(*PLAIN, ART))
    provider = seeing(call("read_file", path="doc.pdf"), "seen")
    await run_once(made, provider, workdir=pictures(tmp_path))
    assert "was not kept: `art` takes image/*, and this holds application/pdf" in texts(asked(provider)[1])


async def test_of_a_part_that_is_bigger_than_its_share_the_name_is_left(tmp_path: Path):
    (tmp_path / "big.png").write_bytes(PNG[:16] + (2_000).to_bytes(4, "big") * 2)
    talk = Region("conversation", kind="sliding_window", max_tokens=600)
    made = blueprint(stage(available_tools=("read_file",)), regions=(TASK, talk))
    provider = seeing(call("read_file", path="big.png"), "seen")
    await run_once(made, provider, workdir=tmp_path)
    assert shown(asked(provider)[1]) == []
    assert "[image/png 2000x2000, 24 bytes] big.png\n[cut: about" in texts(asked(provider)[1])


# --- attaching


ATTACHES = stage(available_tools=("context_attach",))


async def test_a_part_is_attached_by_name_and_stays_when_the_conversation_goes(tmp_path: Path):
    one = stage("one", available_tools=("read_file", "context_attach"), transitions=(edge("two"),))
    two = Stage("two", context=StageContext(reset=("conversation",)))
    attach = call("context_attach", region="art", part="b.png", key="front")
    provider = seeing(call("read_file", path="b.png"), attach, "done", "seen")
    await run_once(blueprint(one, two, regions=(*PLAIN, ART)), provider, workdir=pictures(tmp_path))
    last = asked(provider)[-1]
    assert [str(blob.stand_in) for blob in shown(last)] == [f"In `art` under `front`: {LINE} b.png"]


async def test_a_file_of_the_working_directory_is_attached(tmp_path: Path):
    provider = seeing(call("context_attach", region="art", part="b.png"), "seen")
    _, events = await run_once(blueprint(ATTACHES, regions=(*PLAIN, ART)), provider, workdir=pictures(tmp_path))
    assert [part.name for part in payloads(events, "PartStored")] == ["b.png"]
    assert names(shown(asked(provider)[1])) == ["b.png"]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("gone.png", "there is no stored part 'gone.png'; stored parts: none"),
        ("../b.png", "'../b.png' leads outside the folder"),
        ("sub", "'sub' is a folder"),
        ("big.bin", "'big.bin' holds 99 bytes and at most 50 are attached; raise `part_bytes`"),
    ],
)
async def test_what_cannot_be_attached_is_an_error(tmp_path: Path, part: str, said: str):
    (tmp_path / "sub").mkdir()
    (tmp_path / "big.bin").write_bytes(b"\0" * 99)
    provider = seeing(call("context_attach", region="art", part=part), "seen")
    made = blueprint(ATTACHES, regions=(*PLAIN, ART))
    _, events = await run_once(made, provider, workdir=tmp_path, limits=Limits(part_bytes=50))
    [completed] = payloads(events, "ToolCallCompleted")
    assert (completed.is_error, said in str(completed.text)) == (True, True)


async def test_an_attached_part_counts_as_work_on_a_required_region(tmp_path: Path):
    art = Region("art", kind="pinned", max_tokens=3_000, required=True)
    provider = seeing("forgot", call("context_attach", region="art", part="b.png"), "done")
    _, events = await run_once(blueprint(ATTACHES, regions=(*PLAIN, art)), provider, workdir=pictures(tmp_path))
    assert len(payloads(events, "Nudged")) == 1


# --- mail


async def paused(swarm: Swarm, made: Any) -> Run:
    """Return a run that waits until it is resumed; its first reply takes a while."""
    run = await swarm.spawn(made, task="t")
    await run.pause()
    return run


@pytest.mark.parametrize(("region", "where"), [(None, "conversation"), ("art", "art")])
async def test_mail_brings_parts(region: str | None, where: str):
    provider = seeing(SLOW, "seen")
    made = blueprint(Stage("one", transitions=(edge("two"),)), Stage("two"), regions=(*PLAIN, ART))
    async with swarm_of(provider) as swarm:
        run = await paused(swarm, made)
        await run.send("", region=region, parts=[Attachment(PNG, "hero.png")])
        await run.resume()
        await run.result()
        [received] = payloads(events_of(swarm, run), "MessageReceived")
        assert received.parts == payloads_seq(events_of(swarm, run))
        held = folded(swarm, run).view.states[where]
        assert [entry.text for entry in held.all_entries() if entry.parts] == [f"{LINE} hero.png"]


@pytest.mark.parametrize(
    ("parts", "error"), [(["text"], ConfigInvalid), ([b"x" * 101], PartRefused), ([None], ConfigInvalid)]
)
async def test_a_part_that_is_of_no_use_is_not_sent(parts: list[Any], error: type[Exception]):
    async with swarm_of(seeing(SLOW), limits=Limits(part_bytes=100)) as swarm:
        run = await paused(swarm, blueprint(stage()))
        with pytest.raises(error):
            await run.send("look", parts=parts)
        assert payloads(events_of(swarm, run), "MessageReceived") == []


async def test_a_part_is_an_answer_where_a_stage_talks_with_a_person():
    provider = seeing("What shall I look at?", "A harbour.")
    made = blueprint(Stage("chat", mode="interactive"))
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="t", unattended=False)
        await asks(swarm, run, 1)
        await run.send("", parts=[PNG])
        await asks(swarm, run, 2)
        assert len(shown(asked(provider)[1])) == 1
        await run.send("")
        assert (await run.result()).status == "complete_interactive"


async def asks(swarm: Swarm, run: Run, times: int) -> None:
    """Return once *run* has asked its person so many times."""
    async with aclosing(swarm.journal.tail(run.run_id)) as events:
        async for event in events:
            times -= event.kind == "QuestionAsked"
            if not times:
                return


# --- what models make


DRAW = {"image/*": "art", "image/gif": "gifs", "*/*": "rest"}


@pytest.mark.parametrize(
    ("mime", "region"),
    [("image/png", "art"), ("image/gif", "gifs"), ("application/pdf", "rest"), ("text/plain", "rest")],
)
def test_the_narrowest_pattern_says_where_a_part_goes(mime: str, region: str):
    assert region_of(DRAW, mime) == region
    assert region_of({"audio/*": "x"}, mime) is None


def drawing(**routing: str) -> Any:
    rules = {pattern.replace("__", "/").replace("ANY", "*"): region for pattern, region in routing.items()}
    return blueprint(
        Stage("draw", output_routing=rules, transitions=(edge("look"),)),
        Stage("look", context=StageContext(reset=("conversation",))),
        regions=(*PLAIN, ART, Region("map", kind="hashmap", max_tokens=3_000)),
    )


async def test_a_picture_that_a_model_makes_lands_in_its_region_and_the_next_stage_sees_it():
    provider = seeing(Say("Here it is.", parts=(PNG,)), "A harbour.")
    _, events = await run_once(drawing(image__ANY="art"), provider)
    last = asked(provider)[-1]
    assert (names(shown(last)), f"## art\n{LINE} image-1.png" in texts(last)) == (["image-1.png"], True)
    assert "Here it is." not in texts(last)
    [drawn, _] = [reply for reply in payloads(events, "InferenceCompleted") if reply.purpose == "stage"]
    assert drawn.parts == payloads_seq(events)


async def test_what_no_rule_covers_stays_in_the_turn_that_brought_it():
    provider = seeing(Say("Here.", parts=(PNG, GIF)), call("context_append", region="notes", content="x"), "done")
    made = blueprint(
        stage(available_tools=("context_append",), output_routing={"image/gif": "art"}), regions=(*PLAIN, ART)
    )
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="t")
        await run.result()
        turn = next(entry for entry in folded(swarm, run).view.states["conversation"].all_entries())
        assert (turn.message.text, names(turn.message.blobs)) == ("Here.", ["image-1.png"])
        assert [entry.text for entry in folded(swarm, run).view.states["art"].all_entries()] == [
            "[image/gif 16x16, 10 bytes] image-2.gif"
        ]


async def test_a_part_that_its_region_does_not_take_stays_in_the_conversation():
    provider = seeing(Say("Here.", parts=(PDF,)), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(output_routing={"*/*": "art"}), regions=(*PLAIN, ART)), task="t")
        await run.result()
        states = folded(swarm, run).view.states
        assert (states["art"].empty, states["conversation"].parts) == (True, 1)


async def test_a_map_keeps_what_a_model_makes_under_its_name():
    provider = seeing(Say(parts=(PNG, GIF)), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(drawing(ANY__ANY="map"), task="t")
        await run.result()
        keys = [entry.key for entry in folded(swarm, run).view.states["map"].all_entries()]
        assert keys == ["image-1.png", "image-2.gif"]


async def test_what_is_too_large_to_be_kept_is_left_out_of_the_reply():
    provider = seeing(Say("Here.", parts=(PNG, GIF)), "done")
    _, events = await run_once(drawing(image__ANY="art"), provider, limits=Limits(part_bytes=20))
    assert [part.mime for part in payloads(events, "PartStored")] == ["image/gif"]


# --- afterwards


async def test_a_run_tells_of_its_parts_and_gives_their_bytes():
    async with swarm_of(seeing(call("look"), "seen")) as swarm:
        run = await swarm.spawn(blueprint(stage()), task="t", tools=[lens(Attachment(PNG, "hero.png"))])
        await run.result()
        [stored] = run.parts()
        assert (stored.name, stored.mime, stored.width_px) == ("hero.png", "image/png", 64)
        assert await run.part("hero.png") == await run.part(stored.digest[:10]) == PNG
        with pytest.raises(PartMissing, match=r"has no stored part 'other'; its parts: 'hero.png'"):
            await run.part("other")
        assert f"{LINE} hero.png" in run.region("conversation").splitlines()


async def test_a_run_without_parts_says_so():
    async with swarm_of(seeing("seen")) as swarm:
        run = await swarm.spawn(blueprint(stage()), task="t")
        with pytest.raises(PartMissing, match="its parts: none"):
            await run.part("x")


async def test_a_run_that_goes_on_in_another_process_has_its_parts(tmp_path: Path):
    made = blueprint(Stage("one", transitions=(edge("two"),)), Stage("two"), regions=(*PLAIN, ART))
    first = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(seeing(SLOW), journal=first) as swarm:
        run = await paused(swarm, made)
        await run.send("Look:", parts=[Attachment(PNG, "hero.png"), b"some words"])
        run_id = run.run_id
    first.close()
    provider = seeing("first", "seen")
    second = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(provider, journal=second) as swarm:
        again = await swarm.resume_tree(run_id)
        await again.result()
    second.close()
    blobs = shown(asked(provider)[-1])
    assert (blobs[0].load(), str(blobs[1].text)) == (PNG, "some words")


async def test_a_summary_is_written_from_stand_ins_and_its_event_names_what_left():
    art = Region("art", kind="compacting", max_tokens=3_000, threshold_tokens=200)
    made = blueprint(stage(available_tools=("context_attach", "context_append")), regions=(*PLAIN, art))
    replies = [call("context_attach", region="art", part=f"{name}.png", key=name) for name in ("a", "b")]
    provider = ScriptedProvider(
        SLOW,
        *replies,
        call("context_append", region="art", content="words " * 150),
        Say(calls=(call("context_append", region="art", content="newest"),), delay_s=60.0),
        "done",
        profile=EYES,
        purposes={"compaction": "Two pictures.", "titling": "A title"},
    )
    async with swarm_of(provider) as swarm:
        run = await paused(swarm, made)
        await run.send("", region="notes", parts=[Attachment(PNG, "a.png"), Attachment(GIF, "b.png")])
        await run.resume()
        await run.result()
        events = events_of(swarm, run)
        compacted = [each for each in payloads(events, "ContextCompacted") if each.region == "art"]
        asks = [request for request in provider.requests if request.purpose == "compaction"]
        # The notes of the mail hold both parts, so neither leaves the window.
        assert [each.dropped_parts for each in compacted] == [()] * len(compacted) != []
        assert f"{LINE} a.png" in texts(asks[0])
        assert shown(asks[0]) == []


async def test_what_is_attached_has_to_be_bytes():
    with pytest.raises(ConfigInvalid, match="'str' cannot be attached; give bytes, or an `Attachment`"):
        attachments(["text"])  # type: ignore[list-item]
    with pytest.raises(ConfigInvalid, match="'no/such/file' cannot be attached: No such file or directory"):
        Attachment.read("no/such/file")


async def test_a_file_is_attached_under_its_own_name(tmp_path: Path):
    (tmp_path / "hero.png").write_bytes(PNG)
    made = Attachment.read(tmp_path / "hero.png")
    assert (made, repr(made)) == (Attachment(PNG, "hero.png"), "<Attachment hero.png, 26 bytes>")
    assert repr(Attachment(b"")) == "<Attachment without a name, 0 bytes>"


async def test_a_name_that_cannot_be_shown_is_made_fit():
    provider = seeing(call("look"), "seen")
    odd = Attachment(PNG, "x" * 300 + "\n\x1b[1m.png")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(odd)])
    [stored] = payloads(events, "PartStored")
    assert (len(stored.name), stored.name.isprintable(), stored.name[-7:]) == (200, True, "[1m.png")


async def test_large_parts_are_looked_at_in_a_thread():
    large = PNG + b"\0" * 100_000
    provider = seeing(call("look"), "seen")
    _, events = await run_once(blueprint(stage()), provider, tools=[lens(large)])
    [stored] = payloads(events, "PartStored")
    assert stored.digest == hashlib.sha256(large).hexdigest()


# --- vendors


VENDORS: dict[str, Callable[[httpx.AsyncBaseTransport], Provider]] = {
    "anthropic": lambda http: anthropic("k", model="claude-haiku-4-5", http=http),
    "openai": lambda http: openai("k", model="gpt-5.4", http=http),
    "google": lambda http: google("k", model="gemini-2.5-flash", http=http),
    "compatible": lambda http: openai_chat("k", model="gpt-5.4", http=http),
}


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_run_with_parts_sends_nothing_that_a_vendor_would_refuse(vendor: str, tmp_path: Path):
    seed = FilesSeed(("b.png", "doc.pdf", "odd.bin"))
    made = blueprint(
        stage(available_tools=("read_file", "context_attach")),
        regions=(
            *PLAIN,
            Region("art", kind="pinned", max_tokens=9_000, seed=seed),
        ),
    )
    http = wire.InProcess(
        wire.Script(
            wire.call("read_file", path="b.png"),
            wire.call("context_attach", region="notes", part="b.png"),
            last="I see two piers.",
        )
    )
    outcome, _ = await run_once(made, VENDORS[vendor](http), workdir=pictures(tmp_path), task=None)
    assert (http.violations, outcome.status) == ((), "complete"), outcome.reason
    assert all(b"iVBORw0KGgo" in exchange.raw for exchange in http.journal)
