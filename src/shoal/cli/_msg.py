"""`shoal msg`: sends a run a message."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, RunArgument, blueprint_of, run_reader
from shoal.cli._steer import steer, tell
from shoal.cli._texts import TextArgument, text_of
from shoal.errors import ConfigInvalid
from shoal.runtime import Attachment, Run


def command(
    run: RunArgument,
    text: TextArgument,
    /,
    *,
    region: Annotated[str | None, Parameter(help="The region that it goes to; the conversation unless given.")] = None,
    attach: Annotated[
        tuple[Path, ...], Parameter(name="--attach", negative="", help="A file that stands behind the text.")
    ] = (),
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send a run a message, which stands in its next request."""
    said = text_of(text)
    if not said.strip() and not attach:
        raise ConfigInvalid("an empty message says nothing; give a text, or `@FILE`")
    parts = [Attachment.read(path.expanduser()) for path in attach]
    if region is not None:
        _refuse_unknown(run, region, journal)

    async def send(live: Run) -> None:
        await live.send(said, region=region, parts=parts)

    return tell(*steer(run, journal, send), "has the message", as_json=as_json)


def _refuse_unknown(run: str, region: str, journal: Path | None) -> None:
    """Refuse a region that the run's blueprint does not have: the message would silently go elsewhere.

    Raises:
        ConfigInvalid: It has no such region.
    """
    with run_reader(run, journal) as (reader, row):
        blueprint = blueprint_of(reader, row.run_id)
    names = [each.name for each in blueprint.regions]
    if region not in names:
        near = difflib.get_close_matches(region, names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(f'`{name}`' for name in names) or 'none'}"
        raise ConfigInvalid(f"`--region {region}` names no region of {blueprint.name!r}; {hint}")
