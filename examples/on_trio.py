"""The same swarm on trio: everything but the name of the event loop is as on asyncio.

Run it with `python examples/on_trio.py FOLDER`.
"""

import sys

import anyio
import trio

import shoal

TASKS = ("What is in this folder?", "What is missing in this folder?")


async def main(folder: str) -> None:
    async with shoal.Swarm() as swarm:
        runs = [await swarm.spawn("digest", task=task, workdir=folder) for task in TASKS]

        async def tell(run: shoal.Run) -> None:
            outcome = await run.result()
            print(f"{run.title}: {outcome.status}, {outcome.usage.input} tokens in, on trio {trio.__version__}")

        async with trio.open_nursery() as nursery:
            for run in runs:
                nursery.start_soon(tell, run)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else ".", backend="trio")
