"""A pytest plugin: async tests on asyncio and on trio, on virtual time.

Load it with `pytest_plugins = ["shoal.testing.plugin"]` and mark async tests with `@pytest.mark.anyio`. A test that
uses sockets needs the real clock: mark it with `sockets` as well.
"""

from __future__ import annotations

import pytest

from shoal.testing._clock import virtual_backend


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]] | str:
    """Run the test on both event loops; on virtual time, unless it is marked `sockets`."""
    name: str = request.param
    return name if request.node.get_closest_marker("sockets") else virtual_backend(name)
