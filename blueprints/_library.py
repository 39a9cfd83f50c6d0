"""The bundled blueprints, and how a name or a path becomes the place of a blueprint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from shoal.blueprints._files import FILES
from shoal.blueprints._model import Finding
from shoal.blueprints._paths import PREFIX, is_inside
from shoal.blueprints._report import hint, listed
from shoal.errors import BlueprintInvalid

# Beside this module, in a checkout as in an installed wheel.
_LIBRARY = Path(__file__).parent / "library"


def library() -> Mapping[str, Path]:
    """Return the bundled blueprints: folder by name, sorted."""
    if not _LIBRARY.is_dir():
        return MappingProxyType({})
    folders = sorted(folder for folder in _LIBRARY.iterdir() if (folder / FILES[0]).is_file())
    return MappingProxyType({folder.name: folder for folder in folders})


def resolve(name_or_path: str | Path, *, base: Path | None = None) -> Path:
    """Return where the blueprint *name_or_path* is: a folder, or a file.

    A name of the library wins over a folder of that name, so that nothing in a working directory can take its place;
    a path with a separator, such as `./digest`, means that folder.

    Args:
        name_or_path: A name of the library, a path, or `blueprint:PATH` for one inside *base*.
        base: The folder of the blueprint that names this one.

    Raises:
        BlueprintInvalid: Nothing is there; for a name the nearest ones are given.
    """
    text = str(name_or_path)
    if text.startswith(PREFIX):
        return _inside(text, base)
    bundled = library()
    if text in bundled:
        return bundled[text]
    path = Path(text)
    if text and _exists(path):
        return path.resolve()
    if "/" in text or path.suffix:
        raise _missing(f"there is no blueprint at {text!r}; check the path")
    raise _missing(f"there is no blueprint {text!r}{hint(text, bundled)}; the library has {listed(bundled)}")


def _inside(text: str, base: Path | None) -> Path:
    relative = text.removeprefix(PREFIX)
    if base is None:
        raise _missing(f"{text!r} lies in a blueprint's own folder, and there is none here; give `base`")
    path = Path(os.path.realpath(base / relative))
    if not is_inside(relative) or not path.is_relative_to(base.resolve()):
        raise _missing(f"{text!r} leaves the blueprint's folder {str(base)!r}; put it inside")
    if not _exists(path):
        raise _missing(f"there is no blueprint at {text!r} in {str(base)!r}; check the path")
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have, such as one that is too long
        return False


def _missing(message: str) -> BlueprintInvalid:
    return BlueprintInvalid(message, findings=(Finding("blueprint-missing", "error", message),))
