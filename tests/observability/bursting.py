"""A program of its own: twenty thousand spans wait in it when somebody presses Ctrl-C."""

from __future__ import annotations

import faulthandler

import anyio
from spankit import burst

from shoal import Swarm
from shoal.observability import otlp


async def main() -> None:
    telemetry = otlp()
    async with Swarm(telemetry=telemetry):
        burst(telemetry, spans=20_000)
        print(telemetry.statistics().waiting, "spans wait", flush=True)  # noqa: T201 - it is a program
        # Not `sleep_forever`: a signal that comes just before an idle loop falls asleep is seen when it wakes.
        while True:  # noqa: ASYNC110 - nothing else would wake it
            await anyio.sleep(0.05)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(40, exit=True)  # says where it hangs, should it ever
    anyio.run(main)
