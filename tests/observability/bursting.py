"""A program of its own: twenty thousand spans wait in it when somebody presses Ctrl-C."""

from __future__ import annotations

import anyio
from spankit import burst

from shoal import Swarm
from shoal.observability import otlp


async def main() -> None:
    telemetry = otlp()
    async with Swarm(telemetry=telemetry):
        burst(telemetry, spans=20_000)
        print(telemetry.statistics().waiting, "spans wait", flush=True)  # noqa: T201 - it is a program
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
