"""What the user's settings name beyond this process: MCP servers, a memory, a receiver of spans.

A working directory, which may be a stranger's, has no say in any of it. A secret stands in no file: it is named by the
variable that holds it, as `${NAME}`, and looked up when it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from shoal._config import users_table
from shoal.errors import ConfigInvalid
from shoal.runtime import McpServer
from shoal.runtime.tools import is_credential

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_HEADERS = re.compile(r"auth|cookie|key|token|secret", re.IGNORECASE)


def expanded(values: Mapping[str, str], environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return *values* with each `${NAME}` replaced by the variable of that name.

    Raises:
        ConfigInvalid: One is not set.
    """
    variables = os.environ if environ is None else environ

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise ConfigInvalid(f"the variable `{found[1]}` is not set; set it to what the settings want there")
        return variables[found[1]]

    return {name: _VARIABLE.sub(value_of, text) for name, text in values.items()}


# --- MCP servers


@final
class _Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str | tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    folder: str | None = None
    deferred: bool = False
    connect_timeout_s: float = 30.0
    timeout_s: float = 60.0
    idle_s: float = 60.0


def servers_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> tuple[McpServer, ...]:
    """Return the MCP servers that the user's settings name, in their order.

    Args:
        environ: The variables; `None` takes the process's, as they are when a server is started.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: The file cannot be read, says what is of no use, or holds a secret.
    """
    path, said = users_table("mcp", environ, workdir)
    return tuple([_server(path, name, table, environ) for name, table in said.items()])


def _server(path: Path | None, name: str, table: object, environ: Mapping[str, str] | None) -> McpServer:
    where = f"`[mcp.{name}]` in {str(path)!r}"
    try:
        said = msgspec.convert(table, _Server)
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"{where} is of no use: {exc}; mend the file") from exc
    for timeout in ("connect_timeout_s", "timeout_s", "idle_s"):
        if not getattr(said, timeout) > 0:
            raise ConfigInvalid(f"`{timeout}` of {where} is {getattr(said, timeout)!r}; give seconds, more than 0")
    for variable, value in said.env.items():
        if is_credential(variable, value) and _VARIABLE.search(value) is None:
            raise ConfigInvalid(f"{where} holds the secret `{variable}`; write `${{NAME}}`, the variable that has it")
    for header, value in said.headers.items():
        if _SECRET_HEADERS.search(header) is not None and _VARIABLE.search(value) is None:
            raise ConfigInvalid(f"{where} holds the secret `{header}`; write `${{NAME}}`, the variable that has it")
    command = (said.command, *said.args) if isinstance(said.command, str) else (*said.command, *said.args)
    try:
        return McpServer(
            name,
            command if said.command else (),
            said.url,
            partial(expanded, said.env, environ),
            partial(expanded, said.headers, environ),
            None if said.folder is None else Path(said.folder).expanduser(),
            said.connect_timeout_s,
            said.timeout_s,
            said.idle_s,
            deferred=said.deferred,
        )
    except ConfigInvalid as exc:
        raise ConfigInvalid(f"{where} is of no use: {exc}") from exc


# --- memory


@final
class _Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str


def memory_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Path | None:
    """Return the folder in which the user wants agents to remember; `None` where no settings name one.

    Raises:
        ConfigInvalid: The file cannot be read, or says what is of no use.
    """
    path, said = users_table("memory", environ, workdir)
    if not said:
        return None
    try:
        return Path(msgspec.convert(said, _Memory).folder).expanduser()
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"`[memory]` in {str(path)!r} is of no use: {exc}; mend the file") from exc


# --- telemetry


@final
class Receiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where spans go, and how: arguments of `shoal.observability.otlp`; what is not given is the environment's.

    Args:
        endpoint: Base URL.
        headers: Sent with each request; `${NAME}` stands for a variable.
        service_name: Name under which the spans are listed.
        protocol: `http/protobuf`, or `grpc`.
        capture_content: Prompts and outputs go into spans, bounded.
        timeout_s: Seconds for one request.
    """

    endpoint: str
    headers: dict[str, str] = {}
    service_name: str | None = None
    protocol: Literal["http/protobuf", "grpc"] | None = None
    capture_content: bool | None = None
    timeout_s: float | None = None


_SAID_BY = {
    "headers": ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    "service_name": ("OTEL_SERVICE_NAME",),
    "protocol": ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"),
    "capture_content": ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",),
    "timeout_s": ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"),
}
"""Variables that count over a key of the settings."""


def receiver_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Receiver | None:
    """Return where the user's settings send spans; `None` where they do not.

    Raises:
        ConfigInvalid: The file cannot be read, or says what is of no use.
    """
    path, said = users_table("telemetry", environ, workdir)
    if not said:
        return None
    try:
        receiver = msgspec.convert(said, Receiver)
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"`[telemetry]` in {str(path)!r} is of no use: {exc}; mend the file") from exc
    for header, value in receiver.headers.items():
        if _SECRET_HEADERS.search(header) is not None and _VARIABLE.search(value) is None:
            raise ConfigInvalid(f"`[telemetry]` in {str(path)!r} holds the secret `{header}`; write `${{NAME}}` there")
    return receiver


def exporter_settings(receiver: Receiver, environ: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Return the arguments of `otlp` that *receiver* gives and no variable says.

    Raises:
        ConfigInvalid: A variable that a header names is not set.
    """
    variables = os.environ if environ is None else environ
    given: dict[str, Any] = {"endpoint": receiver.endpoint}
    for key, names in _SAID_BY.items():
        value: Any = getattr(receiver, key)
        if value not in (None, {}) and not any(variables.get(name, "").strip() for name in names):
            given[key] = expanded(value, variables) if key == "headers" else value
    return given
