"""The tools of a request, and the form of its reply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import msgspec

from shoal.providers._values._digest import Remembering, to_bytes


@final
class ToolSpec(msgspec.Struct, frozen=True, gc=False):
    """A tool as a model sees it.

    Args:
        name: Its name.
        description: What it does, for the model.
        schema: JSON schema of the arguments, an object schema, as JSON source with sorted keys.
    """

    name: str
    description: str
    schema: bytes


@final
class ToolSet(Remembering, frozen=True, gc=False, eq=False):
    """The tools of a request, sorted by name. Build it once a stage and share it: it keeps its encoded form.

    Args:
        specs: The tools, n, sorted by name; those loaded later stand behind them.
        tokens: Estimate of what the schemas cost, 0 or more.
    """

    specs: tuple[ToolSpec, ...] = ()
    tokens: int = 0

    def _pieces(self) -> Iterable[bytes]:
        return [piece for s in self.specs for piece in (to_bytes(s.name), to_bytes(s.description), s.schema)]


NO_TOOLS = ToolSet()


@final
class OutputFormat(msgspec.Struct, frozen=True, gc=False):
    """The form of a reply: JSON that fits a schema.

    Args:
        name: What it is called, 1 to 64 letters, digits, `_` and `-`.
        schema: The JSON schema, an object schema, as JSON source with sorted keys.
    """

    name: str
    schema: bytes
