"""Names for actors."""

from __future__ import annotations

from typing import final

from shoal.actors._reason import Reason
from shoal.actors._ref import Ref, box_of
from shoal.errors import NameTaken


@final
class Registry:
    """Unique names of live actors. A name is free again once its actor has ended; a restart keeps it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __repr__(self) -> str:
        return f"<Registry of {len(self._entries)} names>"

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def register(self, name: str, ref: Ref) -> None:
        """Give *ref* the *name*; again for the same actor changes nothing, so `on_start` may do it.

        Raises:
            NameTaken: Another live actor has it.
            MailboxClosed: The actor ended.
        """
        held = self._entries.get(name)
        if held is not None:
            if held.ref is ref:
                return
            raise NameTaken(f"{name!r} is the name of {held.ref.path!r}; take another one", path=held.ref.path)
        self._entries[name] = _Entry(self._entries, name, ref)

    def release(self, name: str) -> bool:
        """Free *name*, and say whether it was taken."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            entry.forget()
        return entry is not None

    def lookup(self, name: str) -> Ref | None:
        """Return the actor of that *name*, or `None`."""
        entry = self._entries.get(name)
        return None if entry is None else entry.ref

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that begin with *prefix*, sorted."""
        return tuple(sorted(name for name in self._entries if name.startswith(prefix)))


@final
class _Entry:
    """A name in use: it watches its actor, and goes when that ends."""

    __slots__ = ("_entries", "name", "ref")

    def __init__(self, entries: dict[str, _Entry], name: str, ref: Ref) -> None:
        self._entries = entries
        self.name = name
        self.ref = ref
        box = box_of(ref)
        if box.closed is not None:
            raise box.closed_error()
        box.watch(self)

    def down(self, reason: Reason) -> None:
        """Free the name; called by the mailbox that closes."""
        del reason, self._entries[self.name]

    def forget(self) -> None:
        """Stop watching."""
        box_of(self.ref).unwatch(self)
