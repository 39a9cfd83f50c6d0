"""The tools of a request, and the form of its reply."""

from __future__ import annotations

from typing import Any, final

import msgspec

from shoal.providers._values._digest import digest, forget, to_bytes


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
class ToolSet(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The tools of a request, sorted by name. Build it once a stage and share it: it keeps its encoded form.

    Args:
        specs: The tools, n, sorted by name; those loaded later stand behind them.
        tokens: Estimate of what the schemas cost, 0 or more.
    """

    specs: tuple[ToolSpec, ...] = ()
    tokens: int = 0
    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None:
            forget(self)

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for all names, descriptions and schemas."""
        if not self._digest:
            made = digest(
                *[piece for s in self.specs for piece in (to_bytes(s.name), to_bytes(s.description), s.schema)]
            )
            msgspec.structs.force_setattr(self, "_digest", made)
        return self._digest


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
