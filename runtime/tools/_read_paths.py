"""Files outside the working directory: what a blueprint asks to read and the user grants.

An entry is a path whose whole subtree is meant, or a pattern behind `glob:` or `regex:` that whole paths must match. A
file counts only where an entry of the blueprint and an entry of the user both match where it really is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from shoal.runtime.tools._ignore import rule_of_parts

_NEVER = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Not files but the system itself, the environment of this process included; no grant reaches them."""
_WILD = re.compile(r"[*?\[\\]")


@final
@dataclass(frozen=True, slots=True)
class ReadPaths:
    """What may be read outside a working directory.

    Args:
        declared: Entries of the blueprint.
        granted: Entries of the user.
        workdir: What relative entries are relative to.
    """

    declared: tuple[str, ...]
    granted: tuple[str, ...]
    workdir: Path

    def allow(self, real: Path) -> bool:
        """Say whether the file or folder at *real*, a path without links, may be read."""
        if any(real == root or root in real.parents for root in _NEVER):
            return False
        matching = [entry for entry in self.granted if matches(entry, real, self.workdir)]
        if not matching:
            return False
        # A stranger's regular expression could take for ever; it is tried only where the user wrote the same one.
        declared = [entry for entry in self.declared if not entry.startswith("regex:") or entry in matching]
        return any(matches(entry, real, self.workdir) for entry in declared)


def matches(entry: str, real: Path, workdir: Path) -> bool:
    """Say whether *entry* means the path *real*."""
    if entry.startswith("regex:"):
        return re.fullmatch(entry.removeprefix("regex:"), str(real)) is not None
    fixed, wild = _split(entry, workdir)
    if not wild:
        return real == fixed or fixed in real.parents
    if fixed not in real.parents:
        return False
    return rule_of_parts(wild).matches(real.relative_to(fixed).parts)


def _split(entry: str, workdir: Path) -> tuple[Path, Sequence[str]]:
    """Return the folder, links resolved, that *entry* begins with, and the parts of the pattern behind it."""
    parts = Path(os.path.expanduser(entry.removeprefix("glob:"))).parts  # noqa: PTH111 - without a home it stays as it is
    is_glob = entry.startswith("glob:")
    count = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts)) if is_glob else len(parts)
    if is_glob and count == len(parts):
        count -= 1  # a pattern without a wildcard means that one path and not what is below it
    return workdir.joinpath(*parts[:count]).resolve(), parts[count:]


def ungranted(declared: Sequence[str], granted: Sequence[str], workdir: Path) -> tuple[str, ...]:
    """Return those entries of *declared* of which no entry of *granted* lets anything be read, as far as can be seen.

    Args:
        declared: Entries of a blueprint.
        granted: Entries of the user.
        workdir: What relative entries are relative to.
    """
    return tuple(entry for entry in declared if not any(_may_meet(entry, other, workdir) for other in granted))


def _may_meet(entry: str, other: str, workdir: Path) -> bool:
    if entry == other:
        return True
    if entry.startswith("regex:"):
        return False
    if other.startswith("regex:"):
        return True
    first, second = _split(entry, workdir)[0], _split(other, workdir)[0]
    return first == second or first in second.parents or second in first.parents
