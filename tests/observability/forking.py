"""A program of its own that forks while spans wait: its parent sends those, and its child what it makes itself."""

from __future__ import annotations

import os
import warnings

from spankit import burst

from shoal.observability import otlp


def main() -> None:
    telemetry = otlp()
    burst(telemetry, spans=200, name="before")
    warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks do not go well together, and here they do
    child = os.fork()
    burst(telemetry, spans=100, name="behind" if child else "child")
    telemetry.close()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
