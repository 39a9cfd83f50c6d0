"""A swarm reads a folder: spawn, caller seeds, events, result, ledger.

Run it with `python examples/swarm.py FOLDER`. It uses the offline provider unless `SHOAL_PROVIDER` names another.
"""

import sys
from pathlib import Path

import anyio

import shoal
from shoal.runtime.events import ChildEnded, StageEntered

READER = shoal.blueprints.library()["digest"] / "reader"


async def main(folder: str, first: str) -> None:
    async with shoal.Swarm() as swarm:
        # A lead hands each file to a reader of its own, all at once, and merges what they found.
        lead = await swarm.spawn("digest", task="What is in this folder?", workdir=folder)
        async for event in lead.events():
            match event.payload:
                case StageEntered(stage):
                    print(f"the lead enters {stage}")
                case ChildEnded(child, status):
                    print(f"reader {child} ended {status}")
                case _:
                    pass
        print((await lead.result()).output)
        print(lead.ledger().table())

        # One reader by hand: it sees its two seeds and nothing else of whoever spawned it.
        seeds = {"path": first, "brief": "Say in a sentence what this file is for."}
        reader = await swarm.spawn(READER, seeds=seeds, workdir=folder)
        print(f"{first}: {(await reader.result()).output}")
        print(f"all runs: {swarm.ledger().total.usage.input} tokens in")


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else "."
    files = sorted(entry.name for entry in Path(place).iterdir() if entry.is_file())
    if not files:
        sys.exit(f"there is no file in {place!r}; name a folder that has some")
    anyio.run(main, place, files[0])
