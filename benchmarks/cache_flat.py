"""The same work as a flat list of messages that only grows, with its vendor's automatic caching.

What a plain agent loop sends: one system text, then every message there ever was, new instructions as a user's
message. No leader, no markers of its own, no regions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import httpx
from cache_workloads import MODELS, SEEDS, TASK_TEXT, TOOLS, Workload, words

from shoal.blueprints import Blueprint
from shoal.testing import virtual_backend, wire

HEADERS = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01"}


def flat(workload: Workload, cache: str) -> wire.InProcess:
    """Run *workload* as a flat list with the model that has *cache*, and return the server that answered it."""

    async def run() -> wire.InProcess:
        agent = Flat(workload, cache)
        await agent.run(workload.blueprint)
        return agent.http

    name, options = virtual_backend("asyncio")
    return anyio.run(run, backend=name, backend_options=options)


class Flat:
    """A plain agent."""

    def __init__(self, workload: Workload, cache: str) -> None:
        self.workload = workload
        self.model = MODELS[cache]
        self.marks = cache == "markers"
        self.number = 0
        self.http = wire.InProcess(self.says, wire.Settings(cache=wire.CacheSwitches(openai_machine_rpm=None)))
        self.client = httpx.AsyncClient(transport=self.http, headers=HEADERS, base_url="http://nowhere", timeout=None)

    def says(self, ask: wire.Ask) -> wire.Turn:
        self.number += 1
        return self.workload.says(self.number - 1, ask)

    async def run(self, blueprint: Blueprint, *, item: str = "") -> None:
        texts = [SEEDS[region.name] for region in blueprint.regions if region.name in SEEDS]
        system = "\n\n".join([*texts, *([f"## item\n{item}"] if item else []), blueprint.stages[0].system_prompt or ""])
        said: list[dict[str, Any]] = [{"role": "user", "content": TASK_TEXT}]
        for number, stage in enumerate(blueprint.stages):
            if number:
                said.append({"role": "user", "content": f"Next: {stage.system_prompt or stage.name}"})
            tools = ("fan_out",) if stage.mode == "fan_out" else stage.available_tools
            turns = 200 if self.workload.drive is not None else 1
            for turn in range(turns):
                if turn:
                    await anyio.sleep(30.0)
                    said.append({"role": "user", "content": words(f"and {turn}", 300)})
                await self._turns(system, said, tools)

    async def _turns(self, system: str, said: list[dict[str, Any]], tools: Sequence[str]) -> None:
        """Ask until a reply calls nothing."""
        while True:
            text, calls = await self._ask(system, said, tools)
            self._heard(said, text, calls)
            if not calls:
                return
            for call_id, name, arguments in calls:
                result = await self._called(name, arguments)
                if self.marks:
                    content = [{"type": "tool_result", "tool_use_id": call_id, "content": result}]
                    said.append({"role": "user", "content": content})
                else:
                    said.append({"role": "tool", "tool_call_id": call_id, "content": result})

    def _heard(self, said: list[dict[str, Any]], text: str, calls: Sequence[tuple[str, str, Any]]) -> None:
        if self.marks:
            uses = [{"type": "tool_use", "id": id_, "name": name, "input": args} for id_, name, args in calls]
            said.append({"role": "assistant", "content": [*([{"type": "text", "text": text}] if text else []), *uses]})
            return
        made: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            made["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
                for id_, name, args in calls
            ]
        said.append(made)

    async def _ask(
        self, system: str, said: Sequence[Mapping[str, Any]], tools: Sequence[str]
    ) -> tuple[str, list[tuple[str, str, Any]]]:
        if self.marks:
            offered = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
            body: dict[str, Any] = {
                "model": self.model,
                "max_tokens": 4096,
                "cache_control": {"type": "ephemeral"},
                "system": system,
                "messages": said,
            }
            got = await self.client.post("/v1/messages", json={**body, **({"tools": offered} if tools else {})})
            content = got.raise_for_status().json()["content"]
            calls = [(part["id"], part["name"], part["input"]) for part in content if part["type"] == "tool_use"]
            return "".join([part["text"] for part in content if part["type"] == "text"]), calls
        offered = [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in tools]
        body = {"model": self.model, "messages": [{"role": "developer", "content": system}, *said]}
        got = await self.client.post("/v1/chat/completions", json={**body, **({"tools": offered} if tools else {})})
        message = got.raise_for_status().json()["choices"][0]["message"]
        asked = message.get("tool_calls") or []
        return message.get("content") or "", [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in asked
        ]

    async def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == "fan_out":
            assert self.workload.worker is not None  # who fans out has a worker
            async with anyio.create_task_group() as tasks:
                for item in arguments["items"]:
                    tasks.start_soon(self._work, self.workload.worker, item["seeds"]["item"])
            return f"{len(arguments['items'])} workers: Read."
        given = {made.tool.name: made for made in TOOLS}
        return str(await given[name](**arguments)) if name in given else "ok"

    async def _work(self, worker: Blueprint, item: str) -> None:
        await self.run(worker, item=item)
