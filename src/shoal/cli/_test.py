"""`shoal test`: the tests that a blueprint ships; with `--dry-run` its first request, and nothing is sent."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, final

import anyio
from cyclopts import Parameter

import shoal
from shoal._beyond import servers_from
from shoal._environment import providers_from
from shoal._serving import default_model_from
from shoal.blueprints import Blueprint, load, resolve
from shoal.cli._allowed import AllowOption, NoSeedCommandsOption, SeedOption, permissions_of
from shoal.cli._context import show_prompt
from shoal.cli._places import JsonOption
from shoal.cli._print import complain, line, print_json, say
from shoal.cli._run import OPTIONS, refuse_strangers, seeds_of
from shoal.errors import ConfigInvalid, ProviderRefused, ShoalError
from shoal.providers import SERVERS, ModelProfile, Provider, Request, StreamEvent, TokenCount, chat_encoder
from shoal.runtime import Event, Outcome, Permissions, SeedValue, SqliteReader
from shoal.runtime.events import InferenceStarted, ScriptFailed

if TYPE_CHECKING:
    from shoal.testing import Case, CaseResult

FAILED = 1


def command(
    blueprint: Annotated[str, Parameter(help="A name of the library, or a path.")],
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Show the first request, and send nothing.")] = False,
    only: Annotated[str, Parameter(name="--filter", help="Run the tests whose name holds this.")] = "",
    task: Annotated[str | None, Parameter(help="What it is to do.")] = None,
    workdir: Annotated[Path, Parameter(help="The folder that its tools and seeds may read.")] = Path(),
    seed: SeedOption = (),
    model: Annotated[str | None, Parameter(help="PROVIDER:MODEL, in place of every stage's.")] = None,
    allow: AllowOption = (),
    no_seed_commands: NoSeedCommandsOption = False,
    explain: Annotated[bool, Parameter(name="--explain", negative="", help="Show who owns which part.")] = False,
    as_json: JsonOption = False,
    **regions: Annotated[str, Parameter(help="TEXT or @FILE, for the region of that name.")],
) -> int:
    """Run the tests that a blueprint ships, or show its first request; its seeds and scripts run as in a run."""
    if not dry_run:
        if task is not None or seed or regions or allow or explain:
            raise ConfigInvalid("a blueprint's tests say themselves what their runs are given; add `--dry-run`")
        return run_tests(resolve(blueprint), only, model, as_json=as_json)
    made = load(resolve(blueprint))
    given = seeds_of(made, seed, regions, OPTIONS)
    permissions = permissions_of(made, allow, no_seed_commands=no_seed_commands)
    providers = providers_from()
    refuse_strangers(model, providers)
    with TemporaryDirectory(prefix="shoal-dry-run-") as folder:
        journal = Path(folder, "runs.db")
        trial = Trial(providers)
        ended = anyio.run(lambda: trial.run(journal, permissions, made, task, given, workdir, model))
        for failure in trial.failures:
            complain(f"{failure.region or failure.function}: {failure.message}")
        if trial.request is None:
            assert ended is not None  # one of the two was waited for
            complain(f"the run ended before its first request: {ended.reason}")
            return FAILED
        with closing(SqliteReader(journal)) as reader:
            show_prompt(reader, trial.request[0], trial.request[1], explain=explain, as_json=as_json)
    return 0


# --- tests


def run_tests(path: Path, only: str, model: str | None, *, as_json: bool) -> int:
    """Run the tests of the blueprint at *path* whose name holds *only*, and say how each went.

    Raises:
        ConfigInvalid: It ships none, or one of them is none.
    """
    from shoal.testing import cases_of  # noqa: PLC0415 - only those who test wait for it

    made = load(path)
    folder = path if path.is_dir() else path.parent
    cases = [case for case in cases_of(folder) if only.casefold() in case.name.casefold()]
    if not cases:
        what = f"no test of {made.name!r} has {only!r} in its name" if only else f"{made.name!r} ships no tests"
        raise ConfigInvalid(f"{what}; write `[[test]]` into {str(folder / 'tests' / 'NAME.toml')!r}")
    providers = providers_from()
    refuse_strangers(model, providers)
    results = anyio.run(_each, made, cases, model, not as_json)
    failed = sum(not result.passed for result in results)
    if as_json:
        print_json({"passed": len(results) - failed, "failed": failed, "tests": [_plain(result) for result in results]})
    else:
        say(f"{len(results) - failed} passed, {failed} failed" if failed else f"{len(results)} passed")
    return FAILED if failed else 0


async def _each(made: Blueprint, cases: Sequence[Case], model: str | None, tells: bool) -> Sequence[CaseResult]:  # noqa: FBT001 - `anyio.run` takes no names
    from shoal.testing import run_case  # noqa: PLC0415 - see above

    results: list[CaseResult] = []
    for case in cases:
        # Providers are closed with the swarm that they serve.
        result = await run_case(made, case, providers_from(), model=model, mcp=servers_from())
        results.append(result)
        if tells:
            say(f"{'ok' if result.passed else 'FAILED'}  {line(case.name)}", *(f"  {line(f)}" for f in result.failures))
    return results


def _plain(result: CaseResult) -> dict[str, object]:
    case, outcome = result.case, result.outcome
    return {
        "name": case.name,
        "file": case.place,
        "passed": result.passed,
        "failures": list(result.failures),
        "status": None if outcome is None else outcome.status,
        "output": None if outcome is None else outcome.output,
        "tokens": result.tokens,
    }


# --- the first request


@final
class Trial:
    """A run that is stopped at its first request.

    Args:
        providers: Who would serve models.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.request: tuple[str, int] | None = None
        """The run, and the seq of the event, of the first request; `None` where there was none."""
        self.failures: list[ScriptFailed] = []
        self._providers = [Mute(provider) for provider in providers]
        self._reached: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<Trial {'that waits' if self.request is None else 'at its first request'}>"

    async def run(
        self,
        journal: Path,
        permissions: Permissions,
        made: Blueprint,
        task: str | None,
        seeds: dict[str, SeedValue],
        workdir: Path,
        model: str | None,
    ) -> Outcome | None:
        """Run *made* until it would send its first request; return how it ended where it did so before.

        Raises:
            ShoalError: It could not begin, or stopped before that.
        """
        ended: list[Outcome | ShoalError] = []
        reached = self._reached = anyio.Event()
        swarm = shoal.Swarm(
            self._providers,
            journal=journal,
            observers=[self._see],
            permissions=permissions,
            default_model=default_model_from(self._providers),
        )
        async with swarm:
            run = await swarm.spawn(made, task=task, seeds=seeds, workdir=workdir, model=model, unattended=True)

            async def wait() -> None:
                try:
                    ended.append(await run.result())
                except ShoalError as error:  # such as one that it is paused
                    ended.append(error)
                reached.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await reached.wait()
                tasks.cancel_scope.cancel()
        if not ended:
            return None
        if isinstance(ended[0], ShoalError):
            raise ended[0]
        return ended[0]

    def _see(self, event: Event) -> None:
        if isinstance(event.payload, ScriptFailed):
            self.failures.append(event.payload)
        elif isinstance(event.payload, InferenceStarted) and event.payload.purpose == "stage" and not self.request:
            self.request = (event.run_id, event.seq)
            assert self._reached is not None  # there are no events before `run` is called
            self._reached.set()


@final
class Mute:
    """A provider that sends nothing: a stage waits for its answer for ever, and all else is refused.

    Args:
        stands_for: The provider that it stands for.
    """

    def __init__(self, stands_for: Provider) -> None:
        self._stands_for = stands_for
        self.name = stands_for.name
        self.default_model = stands_for.default_model
        self.stands_in: bool = getattr(stands_for, "stands_in", False)

    def __repr__(self) -> str:
        return f"<Mute for {self.name}>"

    def profile(self, model: str) -> ModelProfile:
        """Return what is known of *model*."""
        return self._stands_for.profile(model)

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return an estimate, since a vendor would have to be asked."""
        return TokenCount(math.ceil(chat_encoder(SERVERS["generic"]).encode(request).size / 4), "estimate")

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Send nothing.

        Yields:
            Nothing.

        Raises:
            ProviderRefused: It is no request of a stage.
        """
        if request.purpose != "stage":
            raise ProviderRefused("a dry run sends nothing", provider=self.name, model=request.model)
        await anyio.sleep_forever()
        yield  # type: ignore[misc]  # it never comes to this

    async def aclose(self) -> None:
        """Close the provider that this one stands for."""
        await self._stands_for.aclose()
