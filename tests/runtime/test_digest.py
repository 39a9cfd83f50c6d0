"""The main job: a lead, a reader a file, a report; lanes that may fail; and what readers may see of their lead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import anyio
import pytest
from runkit import events_of, payloads, sent, swarm_of, write_files

from shoal.providers import Completed, Reply, Request, StreamEvent, Text, offline
from shoal.runtime import Outcome, Run, Swarm, tool
from shoal.runtime.events import Lane

pytestmark = pytest.mark.anyio

Fault = Literal["none", "hang", "nonsense", "blank", "crash", "killed"]

STORY = "The river of sentence {n} carries boat {n} to harbour {n}, where merchant {n} waits for its grain.\n"
BIG = "".join(STORY.format(n=n) for n in range(600))


class Watched:
    """The offline provider; it remembers what it was sent, and goes wrong where a test wants it to."""

    def __init__(self, purpose: str = "", fault: Fault = "none", latency_s: float = 0.0) -> None:
        self._inner = offline(latency_s=latency_s)
        self._purpose, self.fault = purpose, fault
        self.name = self._inner.name
        self.default_model = self._inner.default_model
        self.requests: list[Request] = []
        self.hanging = 0

    def profile(self, model: str):
        return self._inner.profile(model)

    async def count_tokens(self, request: Request):
        return await self._inner.count_tokens(request)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        if request.purpose == self._purpose:
            if self.fault in ("hang", "killed"):
                self.hanging += 1
                await anyio.sleep_forever()
            if self.fault == "crash":
                raise RuntimeError("the provider has a bug")
        said = (
            {"nonsense": "\x00\x01 " * 40_000, "blank": "   "}.get(self.fault)
            if request.purpose == self._purpose
            else None
        )
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                if said is None:
                    yield event
                elif isinstance(event, Completed):
                    yield Completed(Reply(Text.of(said)), event.usage, "stop", simulated=True)

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(
        tmp_path / "work",
        {
            "readme.md": "# Ships\n\nShips carry grain over the sea.\n",
            "docs/boats.md": "Boats are small ships.\n",
            "big.txt": BIG,
        },
    )


async def digest(swarm: Swarm, folder: Path, **more: object) -> Run:
    return await swarm.spawn("digest", task="what these files say", workdir=folder, **more)  # type: ignore[arg-type]


def readers(swarm: Swarm) -> list[Run]:
    return [run for run in swarm.runs() if run.name == "reader"]


# --- the job


async def test_every_file_of_the_folder_is_read_and_stands_in_the_report(folder: Path):
    async with swarm_of(offline()) as swarm:
        outcome = await (await digest(swarm, folder)).result()
        names = {dict(p.seeds)["path"] for run in readers(swarm) for p in payloads(events_of(swarm, run), "RunSpawned")}
    assert outcome.status == "complete"
    assert {str(name) for name in names} == {"readme.md", "docs/boats.md", "big.txt"}
    assert all(
        f"--- {name} (complete) ---" in str(outcome.output) for name in ("readme.md", "docs/boats.md", "big.txt")
    )
    assert "no language model was used" in str(outcome.output)


async def test_a_folder_without_files_gives_a_report_all_the_same(tmp_path: Path):
    async with swarm_of(offline()) as swarm:
        outcome = await (await digest(swarm, tmp_path)).result()
        assert readers(swarm) == []
    assert outcome.status == "complete"


async def test_a_file_that_cannot_be_read_is_named_with_the_reason(folder: Path):
    (folder / "photo.bin").write_bytes(b"\x00\x01\x02" * 100)
    async with swarm_of(offline()) as swarm:
        outcome = await (await digest(swarm, folder)).result()
    assert outcome.status == "complete"
    assert "--- photo.bin (complete) ---" in str(outcome.output)
    assert "binary" in str(outcome.output)


async def test_a_name_with_a_newline_reaches_its_reader_whole(folder: Path):
    (folder / "two\nlines.md").write_text("A strange name for a file about whales.\n")
    async with swarm_of(offline()) as swarm:
        outcome = await (await digest(swarm, folder)).result()
    assert "whales" in str(outcome.output)


# --- isolation


async def test_readers_see_nothing_of_their_lead_but_two_seeds(folder: Path):
    provider = Watched(latency_s=5)
    async with swarm_of(provider) as swarm:
        run = await digest(swarm, folder)
        for region in swarm.state(run.run_id).view.states:
            if region != "brief":
                await run.send(f"SENTINEL in {region}", region=region)
        await run.result()
    lead = [request for request in provider.requests if request.run_id == run.run_id]
    others = [request for request in provider.requests if request.run_id != run.run_id]
    planted = {"task", "findings", "files", "conversation", "final_output", "tool_results"}
    assert all(any(f"SENTINEL in {region}" in sent(request) for request in lead) for region in planted)
    assert len(others) >= 9
    assert not any("SENTINEL" in sent(request) for request in others)


async def test_the_two_seeds_are_what_readers_see(folder: Path):
    provider = Watched()
    async with swarm_of(provider) as swarm:
        run = await digest(swarm, folder)
        await run.result()
        first = next(r for r in provider.requests if r.run_id != run.run_id)
    shown = {block.owner: block.text for block in first.system}
    assert set(shown) == {"path", "brief", "stage_instructions"}
    assert "The report is for this: what these files say" in shown["brief"]


# --- lanes really used


async def test_the_lead_gets_a_title_and_readers_get_none(folder: Path):
    async with swarm_of(offline()) as swarm:
        run = await digest(swarm, folder)
        await run.result()
        titled = payloads(events_of(swarm, run), "RunTitled")
        assert [p.by for p in titled] == ["lane"]
        assert all(payloads(events_of(swarm, reader), "RunTitled") == [] for reader in readers(swarm))


async def test_a_readers_big_file_is_compacted(folder: Path):
    async with swarm_of(offline()) as swarm:
        await (await digest(swarm, folder)).result()
        compacted = [p for run in readers(swarm) for p in payloads(events_of(swarm, run), "ContextCompacted")]
    assert compacted
    assert all(p.region == "file" and p.bytes_saved > 0 for p in compacted)


async def test_a_file_that_is_added_while_readers_are_at_work_is_in_the_merge_stages_request(folder: Path):
    provider = Watched()
    async with swarm_of(provider) as swarm:
        run = await digest(swarm, folder)
        async for event in run.events():
            if getattr(event.payload, "stage", None) == "split":  # type: ignore[union-attr]
                (folder / "late.md").write_text("Late news.\n")
        merge = [r for r in provider.requests if r.run_id == run.run_id and r.purpose == "stage"][-2]
    assert "late.md" in str(merge.tail)


# --- lanes that fail


async def undisturbed(folder: Path) -> list[Outcome]:
    async with swarm_of(offline()) as swarm:
        return [await run.result() for run in [await digest(swarm, folder) for _ in range(3)]]


def degraded(swarm: Swarm, runs: Sequence[Run], lane: Lane) -> list[list[str]]:
    """Return why each run's jobs in *lane* came to nothing; a reader's count for its lead."""
    found: list[list[str]] = []
    for run in runs:
        tree = [run.run_id, *[row.run_id for row in swarm.journal.runs(root=run.run_id) if row.run_id != run.run_id]]
        events = [event for run_id in tree for event in swarm.journal.read(run_id)]
        found.append([p.reason for p in payloads(events, "LaneDegraded") if p.lane == lane])
    return found


async def disturbed(folder: Path, provider: Watched, lane: Lane, tools: Sequence[object] = ()):
    """Run three digests at once on a provider that goes wrong, and return their outcomes and why jobs degraded."""
    async with swarm_of(provider) as swarm:
        runs = [await digest(swarm, folder, tools=tools) for _ in range(3)]
        if provider.fault == "killed":
            while provider.hanging < 3:  # noqa: ASYNC110 - on virtual time a second costs nothing
                await anyio.sleep(1)
            await swarm.side.terminate_child(lane)
        outcomes = [await run.result() for run in runs]
        return outcomes, degraded(swarm, runs, lane)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("killed", "lane_down"),
        ("hang", "timeout"),
        ("nonsense", "nonsense"),
        ("crash", "crashed"),
        ("blank", "nonsense"),
    ],
)
async def test_a_titling_lane_that_fails_changes_nothing_but_the_title(folder: Path, fault: Fault, reason: str):
    expected = await undisturbed(folder)
    # Slow answers: each run outlives its titling job, which so comes to its own end.
    outcomes, reasons = await disturbed(folder, Watched("titling", fault, latency_s=40), "titling")
    assert reasons == [[reason]] * 3
    assert [(o.status, o.flags, o.output) for o in outcomes] == [(o.status, o.flags, o.output) for o in expected]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("killed", "lane_down"),
        ("hang", "timeout"),
        ("nonsense", "not_smaller"),
        ("crash", "crashed"),
        ("blank", "blank"),
    ],
)
async def test_a_compaction_lane_that_fails_ends_runs_as_before(folder: Path, fault: Fault, reason: str):
    expected = await undisturbed(folder)
    outcomes, reasons = await disturbed(folder, Watched("compaction", fault), "compaction")
    assert [(o.status, o.flags) for o in outcomes] == [(o.status, o.flags) for o in expected]
    assert all(reason in run for run in reasons)


class Listing:
    """A `list_dir` that goes wrong where the lead enters its merge stage: at the last listing of each of three runs."""

    def __init__(self, folder: Path, provider: Watched) -> None:
        self._folder, self._provider = folder, provider
        self.calls = 0

    async def list_dir(self, path: str = ".", recursive: bool = False) -> str:
        """List files."""
        self.calls += 1
        if self.calls > 9:
            if self._provider.fault == "crash":
                raise RuntimeError("the disk is gone")
            self._provider.hanging += 1
            await anyio.sleep_forever()
        files = (p for p in self._folder.rglob("*") if p.is_file())
        return "\n".join(sorted(p.relative_to(self._folder).as_posix() for p in files))


@pytest.mark.parametrize(("fault", "reason"), [("hang", "timeout"), ("killed", "lane_down")])
async def test_a_refresh_lane_that_fails_keeps_the_old_list(folder: Path, fault: Fault, reason: str):
    expected = await undisturbed(folder)
    provider = Watched(fault=fault)
    listing = tool(reads=True)(Listing(folder, provider).list_dir)
    outcomes, reasons = await disturbed(folder, provider, "refresh", [listing])
    assert [(o.status, o.flags, o.output) for o in outcomes] == [(o.status, o.flags, o.output) for o in expected]
    assert reasons == [[reason]] * 3


async def test_a_seed_whose_tool_fails_keeps_its_old_block(folder: Path):
    expected = await undisturbed(folder)
    provider = Watched(fault="crash")
    listing = tool(reads=True)(Listing(folder, provider).list_dir)
    outcomes, _ = await disturbed(folder, provider, "refresh", [listing])
    merge = [r for r in provider.requests if r.purpose == "stage" and any(b.owner == "findings" for b in r.system)]
    assert [(o.status, o.flags, o.output) for o in outcomes] == [(o.status, o.flags, o.output) for o in expected]
    assert all("big.txt" in str(r.tail) for r in merge)
