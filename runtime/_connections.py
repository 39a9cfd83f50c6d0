"""The MCP servers of a swarm: which of them a blueprint needs, and whose a recorded tool is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from shoal.blueprints import stage_tools
from shoal.errors import ConfigInvalid, ConnectorFailed, DefinitionMissing, SpawnRefused
from shoal.runtime._bundle import Bundle
from shoal.runtime._mcp import Connection, McpServer
from shoal.runtime.program import by_any_name, shown_only
from shoal.runtime.tools import BUILT_IN, Tool


@final
class Connections:
    """The MCP servers that a swarm has, by name.

    Args:
        servers: The servers.

    Raises:
        ConfigInvalid: Two have the same name.
    """

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._by_name = {server.name: Connection(server) for server in servers}
        if len(self._by_name) < len(servers):
            raise ConfigInvalid("two MCP servers have the same name; give each a name of its own")

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    async def tools_for(self, bundle: Bundle, given: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools that a blueprint's stages need of servers; nobody is asked whose tools no stage names.

        Args:
            bundle: The blueprint.
            given: The functions that the spawn brings in code.

        Raises:
            SpawnRefused: A stage names a server that is not here, or one that cannot be reached.
        """
        stages = bundle.blueprint.stages
        whole = {name for stage in stages for name in stage.available_connectors}
        missing = sorted(whole.difference(self._by_name))
        if missing:
            here = ", ".join(f"`{name}`" for name in self._by_name) or "none"
            raise SpawnRefused(
                f"{bundle.blueprint.name!r} needs the MCP server {missing[0]!r}, and this swarm has {here}; name "
                f"it in `[mcp.{missing[0]}]` of the settings, or give it with `Swarm(mcp=[McpServer(…)])`"
            )
        known = {*BUILT_IN, *(tool.name for tool in given), *(file.stem for file in bundle.tools)}
        listed = {name for stage in stages for name in stage_tools(stage)}.difference(known)
        asked = [each for each in self if each.server.name in whole or any(map(each.may_have, listed))]
        try:
            offers = [await each.tools() for each in asked]
        except ConnectorFailed as exc:
            raise SpawnRefused(f"{bundle.blueprint.name!r} cannot begin: {exc}") from exc
        offered = [tool for tools in offers for tool in tools]
        named = by_any_name(offered)
        needed = {id(named[name]) for name in listed if name in named}
        return [tool for tool in offered if id(tool) in needed or (tool.connector and tool.connector[0] in whole)]

    def recorded(self, said: Mapping[str, Any]) -> Tool:
        """Return a tool as the journal holds it, bound to its server.

        Raises:
            DefinitionMissing: There is no such server here.
        """
        shown = shown_only(said)
        assert shown.connector is not None  # the caller looked
        server, original = shown.connector
        connection = self._by_name.get(server)
        if connection is None:
            raise DefinitionMissing(
                f"this run uses tools of the MCP server {server!r}; give it again with `Swarm(mcp=[McpServer(…)])`"
            )
        said_then = (shown.name, original, shown.description, shown.schema, shown.effects)
        return connection.bound(*said_then, deferred=shown.deferred)
