"""`shoal blobs`: the stored parts of a run, and one of them written out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shoal.cli._context import state_at
from shoal.cli._places import JournalOption, JsonOption, RunArgument, run_reader
from shoal.cli._print import line, print_json, print_table, say
from shoal.errors import ConfigInvalid, PartMissing
from shoal.providers import readable
from shoal.runtime import PartStored, Reader, RunState

_DIGEST_CHARS = 12


def command(
    run: RunArgument,
    part: Annotated[str | None, Parameter(name="PART", help="A part's name or digest, or how that begins.")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), help="Write the part to this file.")] = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """List what was stored in a run: images, documents and other bytes; or write one part out."""
    if output is not None and part is None:
        raise ConfigInvalid("`--output` writes one part; name it: `shoal blobs RUN PART --output FILE`")
    with run_reader(run, journal) as (reader, row):
        state = state_at(reader, row.run_id, None)
        wanted = _wanted(state, part)
        if output is not None:
            _write(reader, wanted[0][1], output)
            return 0
    rows = [_plain(state, seq, stored) for seq, stored in wanted]
    if as_json:
        print_json(rows)
    elif rows:
        _show(rows)
    else:
        say(f"run {state.run_id} has no stored parts")
    return 0


def _wanted(state: RunState, part: str | None) -> list[tuple[int, PartStored]]:
    shelf = state.shelf
    if part is None:
        return list(shelf.stored.items())
    seq = shelf.find(part)
    if seq is None:
        names = ", ".join(repr(stored.name) for stored in shelf.stored.values()) or "none"
        raise PartMissing(f"run {state.run_id} has no stored part {part!r}; its parts: {names}", run_id=state.run_id)
    return [(seq, shelf.stored[seq])]


def _plain(state: RunState, seq: int, stored: PartStored) -> dict[str, Any]:
    held = state.view.states.items()
    regions = [name for name, region in held if any(seq in entry.parts for entry in region.all_entries())]
    return {
        "name": stored.name,
        "mime_type": stored.mime,
        "size": stored.size,
        "width": stored.width_px,
        "height": stored.height_px,
        "pages": stored.pages,
        "seconds": stored.seconds,
        "sha256": stored.digest,
        "seq": seq,
        "regions": regions,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    print_table(
        ("name", "type", "measure", "size", "digest", "event", "in"),
        [
            (
                line(row["name"]),
                row["mime_type"],
                _measure(row),
                readable(row["size"]),
                row["sha256"][:_DIGEST_CHARS],
                str(row["seq"]),
                line(", ".join(row["regions"])) or "-",
            )
            for row in rows
        ],
        right=("size", "event"),
    )


def _measure(row: dict[str, Any]) -> str:
    if row["width"] is not None:
        return f"{row['width']}x{row['height']}"
    if row["pages"] is not None:
        return f"{row['pages']} p."
    return "" if row["seconds"] is None else f"{row['seconds']:.0f} s"


def _write(reader: Reader, stored: PartStored, output: Path) -> None:
    data = reader.part(stored.digest)
    try:
        output.expanduser().write_bytes(data)
    except OSError as exc:
        raise ConfigInvalid(f"{str(output)!r} cannot be written: {exc.strerror or exc}; name another file") from exc
