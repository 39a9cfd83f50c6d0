"""A function hands tickets to children, fifty at once, and collects typed answers.

Run it with `python examples/fan_out.py`. A model on loopback stands in for a vendor's: no key, no network.
"""

import json
import re

import anyio
import pydantic

import shoal
from shoal.blueprints import CallerSeed
from shoal.providers import openai
from shoal.testing import wire


class Verdict(pydantic.BaseModel):
    """What is thought of one ticket."""

    ticket: int
    severe: bool


JUDGE = shoal.Blueprint(
    "judge",
    stages=(
        shoal.Stage(
            "judge",
            mode="output",
            require_output=True,
            allow_complete=True,
            system_prompt="Say whether the ticket is severe.",
        ),
    ),
    regions=(
        shoal.Region("rules", kind="pinned", max_tokens=500, seed=CallerSeed("rules"), volatility="stable"),
        shoal.Region("ticket", kind="pinned", max_tokens=500, seed=CallerSeed("ticket"), required=True),
    ),
)


@shoal.agentic
async def triage(ctx: shoal.Context, tickets: list[str]) -> list[Verdict]:
    """Judge all tickets, each by an agent of its own."""
    rules = "A fire is severe. All else is not."
    judges = await ctx.gather(
        *[ctx.spawn(JUDGE, seeds={"rules": rules, "ticket": ticket}, returns=Verdict) for ticket in tickets]
    )
    ended = await ctx.gather(*[judge.result() for judge in judges])
    return [each.output for each in ended if each.output is not None]


def model(ask: wire.Ask) -> wire.Turn:
    """Stand in for the model: submit a verdict, then be done."""
    if ask.results:
        return wire.turn("Done.")
    ticket = re.search(r"ticket (\d+): (.*)", ask.system)
    assert ticket is not None  # it is in the region `ticket`
    verdict = {"ticket": int(ticket[1]), "severe": "fire" in ticket[2]}
    return wire.turn(wire.call("submit_output", content=json.dumps(verdict)))


async def main() -> None:
    tickets = [
        f"ticket {number}: the {'barn is on fire' if number % 10 == 0 else 'gate is shut'}" for number in range(50)
    ]
    async with wire.serve(model) as server:
        provider = openai("any key", model="gpt-5.4", base_url=server.openai_url)
        async with shoal.Swarm([provider], pools={"openai": 8}) as swarm:
            run = await swarm.spawn(triage.bound(tickets))
            outcome = await run.result()
            print("severe:", [verdict.ticket for verdict in outcome.output if verdict.severe])
            print(f"{len(swarm.runs()) - 1} children for {swarm.ledger(run.run_id).total.cost} USD")


if __name__ == "__main__":
    anyio.run(main)
