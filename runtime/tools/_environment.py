"""The environment that commands get: that of this process, without what looks like a credential."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import final

import msgspec

_CREDENTIAL = re.compile(
    r"(?:^|[^A-Z])(?:KEYS?|AUTH|PASS|PWD|CREDS?|PIN|DSN|JWT|BEARER|COOKIES?|PRIVATE|SALT|SIGNATURE)(?:$|[^A-Z])"
    r"|KEY$|KEYS$|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|ACCESSKEY|AUTHORIZATION"
)
_CARRIES_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)
_NO_CREDENTIALS = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})
_MISLEADING = frozenset({"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "CDPATH", "GLOBIGNORE"})
"""What a shell would read something by before the line, or mean something else by it."""


@final
class Environment(msgspec.Struct, frozen=True):
    """What a command gets.

    Args:
        values: Variables by name, in sorted order.
        withheld: Names of those that it does not get because they look like credentials, sorted.
    """

    values: Mapping[str, str]
    withheld: tuple[str, ...]


def is_credential(name: str, value: str) -> bool:
    """Say whether a variable looks like a credential, by its name or by a password in an address."""
    if name in _NO_CREDENTIALS:
        return False
    return _CREDENTIAL.search(name.upper()) is not None or _CARRIES_PASSWORD.search(value) is not None


def environment(environ: Mapping[str, str], allowed: Collection[str] = ()) -> Environment:
    """Return what a command gets of *environ*.

    Args:
        environ: The variables of this process.
        allowed: Names that are passed on though they look like credentials.
    """
    names = [name for name in sorted(environ) if name not in _MISLEADING and not name.startswith("BASH_FUNC_")]
    withheld = tuple(name for name in names if name not in allowed and is_credential(name, environ[name]))
    values = {name: environ[name] for name in names if name not in withheld}
    # A folder that is relative, as an empty one is, would let the working directory stand in for any program.
    folders = [folder for folder in values.get("PATH", os.defpath).split(os.pathsep) if folder.startswith("/")]
    values["PATH"] = os.pathsep.join(folders)
    return Environment(dict(sorted(values.items())), withheld)
