"""Lets the tests of this folder import the helpers that stand beside them, and gives them a receiver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from receiver import GrpcReceiver, Receiver


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the `OTEL_*` variables of whoever runs the tests out of them."""
    import os

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An OTLP/HTTP receiver on loopback."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def grpc_receiver() -> Iterator[GrpcReceiver]:
    """An OTLP/gRPC receiver on loopback."""
    with GrpcReceiver() as receiver:
        yield receiver
