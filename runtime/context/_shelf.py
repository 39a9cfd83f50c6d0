"""The stored parts of a run: what they are, and where their bytes can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, final

from shoal.errors import PartMissing
from shoal.providers import Blob, Media, Text, blob_of
from shoal.runtime.context._changes import PartStored
from shoal.runtime.context._entry import unused

LoadPart: TypeAlias = Callable[[str], bytes]
"""Returns the bytes that a digest stands for; safe to call in any thread."""

_LEAST_DIGEST = 8
"""Characters of a digest that are enough to name a part by it."""


def nowhere(digest: str) -> bytes:
    """Return no bytes: there is no store.

    Raises:
        PartMissing: Always.
    """
    raise PartMissing(f"the stored part {digest[:12]!r} cannot be had: nothing keeps parts here")


@final
class Shelf:
    """The stored parts of a run, each by the seq of the event that brought it.

    Args:
        load: Returns the bytes of a part by its digest.
    """

    __slots__ = ("_blobs", "_load", "stored")

    def __init__(self, load: LoadPart = nowhere) -> None:
        self._load = load
        self._blobs: dict[int, Blob] = {}
        self.stored: dict[int, PartStored] = {}
        """The parts by seq, oldest first."""

    def __repr__(self) -> str:
        return f"<Shelf {len(self.stored)} parts>"

    def keep(self, seq: int, stored: PartStored) -> None:
        """Take note of a part that event *seq* brought."""
        self.stored[seq] = stored

    def blobs(self, seqs: Iterable[int]) -> tuple[Blob, ...]:
        """Return the parts of *seqs*, n in order; each is made once, and the text of one that is text is loaded then.

        Raises:
            PartMissing: A text cannot be had.
        """
        return tuple([self._blobs.get(seq) or self._made(seq) for seq in seqs])

    def _made(self, seq: int) -> Blob:
        stored = self.stored[seq]
        load = partial(self._load, stored.digest)
        media = Media(stored.mime, stored.width_px, stored.height_px, stored.pages, stored.seconds)
        text = Text.of(load().decode()) if stored.mime == "text/plain" else None
        made = blob_of(media, stored.size, bytes.fromhex(stored.digest), load, name=stored.name, text=text)
        self._blobs[seq] = made
        return made

    def known(self, digest: str, name: str) -> int | None:
        """Return the seq of the part that holds those bytes, and has that name where one is given; `None` for none."""
        for seq, stored in self.stored.items():
            if stored.digest == digest and name in ("", stored.name):
                return seq
        return None

    def find(self, wanted: str) -> int | None:
        """Return the seq of the part that is called *wanted*, or whose digest is or begins so; `None` for none."""
        for seq, stored in self.stored.items():
            if stored.name == wanted:
                return seq
        if len(wanted) < _LEAST_DIGEST:
            return None
        hits = {stored.digest: seq for seq, stored in self.stored.items() if stored.digest.startswith(wanted.lower())}
        return next(iter(hits.values())) if len(hits) == 1 else None

    def free_name(self, name: str) -> str:
        """Return *name*, or *name* with the first number that no part has yet."""
        return unused(name, {stored.name for stored in self.stored.values()})

    def names(self, seqs: Iterable[int]) -> Sequence[str]:
        """Return the names of the parts of *seqs*, in order."""
        return [self.stored[seq].name for seq in seqs]

    def dump(self) -> list[tuple[int, PartStored]]:
        """Return everything in it, as plain values."""
        return list(self.stored.items())
