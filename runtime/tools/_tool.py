"""What a tool is, what a call of one is given, and what it gives back."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import anyio
import msgspec

from shoal.blueprints import Permission, tool_name
from shoal.errors import ToolInvalid
from shoal.providers import Text, ToolSpec
from shoal.runtime._attachment import Attachment
from shoal.runtime._paths import Also
from shoal.runtime.context import estimate_text
from shoal.runtime.scripts import Sandbox
from shoal.runtime.tools._notes import Memory

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@final
@dataclass(frozen=True, slots=True)
class Effects:
    """What calling a tool does to the world; decides what a resumed run may call again.

    Args:
        reads: It looks at something outside the run.
        writes: It changes something outside the run.
        network: It reaches beyond this machine.
        asks_human: It waits for a person.
        idempotent: Calling it again does no harm; `None` is true for a tool that only reads.
    """

    reads: bool = False
    writes: bool = False
    network: bool = False
    asks_human: bool = False
    idempotent: bool | None = None

    @property
    def repeatable(self) -> bool:
        """A call that was interrupted may simply be made again."""
        if self.idempotent is not None:
            return self.idempotent
        return self.reads and not (self.writes or self.network or self.asks_human)


@final
class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """What a call comes to.

    Args:
        text: What the model reads.
        note: What stays beside the call where the text is routed to a region; empty for nothing.
        is_error: The call failed; *text* says why and what to do.
        parts: Images, documents and other bytes that stand behind the text.
    """

    text: Text
    note: str = ""
    is_error: bool = False
    parts: tuple[Attachment, ...] = ()

    @classmethod
    def of(cls, text: str, *, note: str = "") -> ToolResult:
        """Return *text* as a result."""
        return cls(Text.of(text), note)

    @classmethod
    def error(cls, text: str) -> ToolResult:
        """Return *text* as an error that the model reads."""
        return cls(Text.of(f"[error] {text}"), is_error=True)


@final
@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run may be told about itself.

    Args:
        blueprint: Name of its blueprint.
        version: Version of its blueprint.
        parent: The run that spawned it; `None` for a root.
        depth: 0 for a root.
        children_deeper: How many levels of children may stand below it.
        unattended: Nobody is there to ask.
    """

    blueprint: str = ""
    version: str = ""
    parent: str | None = None
    depth: int = 0
    children_deeper: int = 0
    unattended: bool = True


@final
@dataclass(frozen=True, slots=True)
class Shell:
    """How shell lines run.

    Args:
        timeout_s: Seconds that one may take.
        most_bytes: Most bytes that are kept of each stream.
        allow_env_vars: Variables that they get though these look like credentials.
        threads: Limits the threads that wait for lines; `None` takes those of the tools.
    """

    timeout_s: float = 60.0
    most_bytes: int = 1024 * 1024
    allow_env_vars: tuple[str, ...] = ()
    threads: anyio.CapacityLimiter | None = None


def _no_region(_name: str) -> str | None:
    return None


@final
@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a built-in tool works with.

    Args:
        run_id: The run.
        workdir: Its working directory, a real path; nothing outside it is written.
        hidden_dir: A folder that listings leave out; `None` for none.
        threads: Limits the threads that block for tools.
        read_bytes: Most bytes that one read gives.
        list_entries: Most entries that one listing gives.
        edit_bytes: Largest file that is edited.
        part_bytes: Largest file that is attached.
        region: Says where the text of a region of that name stands; `None` where there is no such region.
        also: Says what outside *workdir* may be read; `None` for nothing.
        shell: How shell lines run.
        now: Returns the time, unix seconds.
        facts: What the run may be told about itself.
        sandbox: What runs scripts; `None` for nothing.
        memory: What is remembered from run to run; `None` where the user named none.
    """

    run_id: str
    workdir: Path
    hidden_dir: Path | None
    threads: anyio.CapacityLimiter
    read_bytes: int = 256 * 1024
    list_entries: int = 2_000
    edit_bytes: int = 8 * 1024 * 1024
    part_bytes: int = 32 * 1024 * 1024
    region: Callable[[str], str | None] = _no_region
    also: Also | None = None
    shell: Shell = Shell()
    now: Callable[[], float] = time.time
    facts: RunFacts = RunFacts()
    sandbox: Sandbox | None = None
    memory: Memory | None = None


class Call(Protocol):
    """What runs when a tool is called; arguments are checked against its schema before."""

    def __call__(self, context: ToolContext, args: Mapping[str, Any]) -> Awaitable[ToolResult]: ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A typed function with a JSON schema, a permission and declared effects.

    Args:
        name: Its name.
        description: What it does, for the model.
        schema: JSON schema of its arguments, an object schema.
        call: What runs; `None` for a tool that the run itself answers.
        permission: What happens where nobody says anything else.
        effects: What calling it does to the world.
        source: Where a function given in code is, and the digest of its source; `None` for a built-in.
        connector: The MCP server that has it, and the name under which that knows it; `None` for another tool.
        deferred: It stands by name only until the model loads it with `load_tools`.

    Raises:
        ToolInvalid: No vendor takes a tool of that name, or its schema is no JSON.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Call | None
    permission: Permission = "allow"
    effects: Effects = Effects()
    source: tuple[str, str] | None = None
    connector: tuple[str, str] | None = None
    deferred: bool = False
    spec: ToolSpec = field(init=False)
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or tool_name(self.name) != self.name:
            raise ToolInvalid(
                f"{self.name!r} is no name for a tool; take up to 64 letters, digits, `_` or `-`, and no tool's alias"
            )
        try:
            source = schema_bytes(self.schema)
        except (TypeError, ValueError) as exc:
            raise ToolInvalid(f"the schema of the tool `{self.name}` is no JSON: {exc}; write plain values") from exc
        object.__setattr__(self, "spec", ToolSpec(self.name, self.description, source))
        definition = f'{{"name":"{self.name}","description":"{self.description}","input_schema":{source.decode()}}}'
        object.__setattr__(self, "tokens", estimate_text(Text.of(definition)))


def schema_bytes(schema: Mapping[str, Any]) -> bytes:
    """Return the JSON source of *schema*, the same for the same schema."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=dict).encode()
