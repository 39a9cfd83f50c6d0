"""Runs as a file of JSON lines, for another machine: a whole tree, with all that it is made of, and a digest."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import final

import msgspec

from shoal.errors import JournalFailed, JournalNewer, SpawnRefused
from shoal.runtime.events import NUMBERS, Event, RunSpawned, decode, encode
from shoal.runtime.journal._base import Reader
from shoal.runtime.journal._file import FORMAT
from shoal.runtime.journal._references import definitions_of, parts_of
from shoal.runtime.journal._sqlite import SqliteJournal

WHAT = "runs"
"""What the first line says that the file holds."""


@final
class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: the head, a definition, a part, an event, or the digest of all lines before it."""

    shoal: str = ""
    format: int = 0
    root: str = ""
    definition: str = ""
    part: str = ""
    data: str = ""
    run: str = ""
    seq: int = 0
    kind: int = 0
    at: float = 0.0
    payload: msgspec.Raw = msgspec.Raw(b"null")
    digest: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def export_tree(reader: Reader, run_id: str) -> Iterator[bytes]:
    """Yield the tree that a run belongs to as lines: definitions, parts and events, and a digest at the end.

    Args:
        reader: The journal.
        run_id: Any run of the tree.

    Raises:
        RunNotFound: There is no such run.
        SpawnRefused: A newer version wrote some of its events.
        JournalDamaged: An event cannot be read.
    """
    said = hashlib.sha256()
    root = reader.find(run_id).root
    for line in _lines(reader, root):
        encoded = _encoder.encode(line) + b"\n"
        said.update(encoded)
        yield encoded
    yield _encoder.encode(_Line(digest=said.hexdigest())) + b"\n"


def _lines(reader: Reader, root: str) -> Iterator[_Line]:
    yield _Line(shoal=WHAT, format=FORMAT, root=root)
    known: set[str] = set()
    for row in reader.runs(root=root):
        for place, event in enumerate(reader.read(row.run_id), 1):
            if event.seq != place:
                raise SpawnRefused(f"run {row.run_id} has events of a newer version; export it with that one")
            for digest in definitions_of(event.payload):
                if digest not in known:
                    known.add(digest)
                    yield _Line(definition=digest, data=_text(reader.definition(digest)))
            for digest in parts_of(event.payload):
                if digest not in known:
                    known.add(digest)
                    yield _Line(part=digest, data=_text(reader.part(digest)))
            raw = msgspec.Raw(encode(event.payload))
            yield _Line(run=event.run_id, seq=event.seq, kind=NUMBERS[type(event.payload)], at=event.at, payload=raw)


def import_tree(path: str | os.PathLike[str], lines: Iterable[bytes]) -> str:
    """Put an exported tree of runs into the journal at *path*, all of it or nothing, and return the id of its root.

    Nobody hosts it there: what is not over can be resumed.

    Raises:
        JournalFailed: The lines are no export, or not whole; or the runs are there already; or it cannot be written.
        JournalNewer: A newer version exported it.
    """
    checked = list(_checked(lines))
    events = [_event(line) for line in checked if line.run]
    with closing(SqliteJournal(Path(path))) as journal:
        there = {row.run_id for row in journal.runs()}
        twice = sorted({event.run_id for event in events} & there)
        if twice:
            raise JournalFailed(f"{str(path)!r} has run {twice[0]} already; import it into another journal")
        keys = {row.key for row in journal.runs()}
        for line in checked:
            if line.definition:
                journal.define(line.definition, base64.b64decode(line.data))
            elif line.part:
                journal.store(line.part, base64.b64decode(line.data))
        for event in events:
            journal.graft(_without_key(event, keys))
    return checked[0].root


def _checked(lines: Iterable[bytes]) -> Sequence[_Line]:
    """Return *lines* read, without the last, once that has shown that none is missing or changed."""
    said = hashlib.sha256()
    read: list[_Line] = []
    for number, line in enumerate(lines, 1):
        try:
            parsed = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise _torn(f"line {number} cannot be read: {exc}") from exc
        if number == 1 and parsed.shoal != WHAT:
            raise JournalFailed("this is no export of runs; `shoal export RUN` makes one")
        if number == 1 and parsed.format > FORMAT:
            why = f"this export has format {parsed.format} and this version reads 1 to {FORMAT}; install a newer one"
            raise JournalNewer(why)
        if parsed.digest:
            if parsed.digest != said.hexdigest():
                raise _torn("its digest is another")
            return read
        said.update(line)
        read.append(parsed)
    raise _torn("its last line is missing")


def _event(line: _Line) -> Event:
    payload = decode(line.kind, bytes(line.payload))
    if payload is None:
        raise JournalNewer(f"event {line.seq} of run {line.run} is of a kind that only a newer version knows")
    return Event(line.run, line.seq, line.at, payload)


def _without_key(event: Event, taken: set[str | None]) -> Event:
    """Return the first event of a run without the key of its spawn, where another run has that here."""
    payload = event.payload
    if not isinstance(payload, RunSpawned) or payload.key is None or payload.key not in taken:
        return event
    return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, key=None))


def _torn(why: str) -> JournalFailed:
    return JournalFailed(f"this export is not what was written: {why}; fetch it again")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
