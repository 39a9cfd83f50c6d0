"""A supervisor tree written by hand: an agent crashes and goes on from its journal, while its siblings go on.

Run it with `python examples/tree.py FOLDER`.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

import shoal
from shoal.providers import ModelProfile, Request, StreamEvent, TokenCount, offline
from shoal.runtime.events import RunRestarted, ToolCallCompleted

READER = shoal.blueprints.library()["digest"] / "reader"


class CrashesOnce:
    """The offline provider with a defect that shows once, at the second request about the file *path*."""

    name = "offline"
    default_model = "offline"

    def __init__(self, path: str) -> None:
        self._inner = offline()
        self._path = path
        self._asked = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Answer as the offline provider does, or crash."""
        if any(block.owner == "path" and self._path in block.text for block in request.system):
            self._asked += 1
            if self._asked == 2:
                raise RuntimeError("a defect in the provider")
        async for event in self._inner.stream(request):
            yield event

    async def count_tokens(self, request: Request) -> TokenCount:
        """Count as the offline provider does."""
        return await self._inner.count_tokens(request)

    def profile(self, model: str) -> ModelProfile:
        """Return what the offline provider says of *model*."""
        return self._inner.profile(model)

    async def aclose(self) -> None:
        """Close the offline provider."""
        await self._inner.aclose()


async def main(folder: str, paths: list[str]) -> None:
    brief = "Say in a few sentences what your file holds."
    readers = [
        shoal.agent(f"reads {path}", blueprint=READER, seeds={"path": path, "brief": brief}, workdir=folder)
        for path in paths
    ]
    tree = shoal.Supervisor("desk", strategy="one_for_one", max_restarts=3, within_s=60.0, children=readers)
    async with shoal.Swarm([CrashesOnce(paths[0])]) as swarm:
        await swarm.start(tree)
        for path in paths:
            outcome = await swarm.run_of(f"desk/reads {path}").result()
            print(f"{path}: {outcome.status}")
        print(tree.render())

        # The crash is an event of the run: what it had read before was not read again.
        for event in swarm.journal.read(swarm.run_of(f"desk/reads {paths[0]}").run_id):
            if isinstance(event.payload, ToolCallCompleted | RunRestarted):
                print(f"event {event.seq} of the run that crashed: {event.kind}")


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else "."
    files = sorted(entry.name for entry in Path(place).iterdir() if entry.is_file())
    if not files:
        sys.exit(f"there is no file in {place!r}; name a folder that has some")
    anyio.run(main, place, files[:3])
