"""Which values of the environment nobody is to read again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from shoal._environment import KEYS
from shoal._granted import secret_names
from shoal._serving import providers_said
from shoal.runtime import LEAST_SECRET_CHARS


def secrets_from(names: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the secrets of the environment, by the name of the variable: those that are named, and vendors' keys.

    Args:
        names: Variables that hold secrets, besides those that the settings name; one that is not set holds none.
        environ: The variables; `None` takes the process's.

    Raises:
        ConfigInvalid: The settings are of no use.
    """
    variables = os.environ if environ is None else environ
    wanted = {name: variables[name] for name in (*names, *secret_names(environ)) if variables.get(name)}
    own = [said.key_env for said in providers_said(environ).by_name.values() if said.key_env is not None]
    # A key that is too short to be one was set for a server that asks for none.
    keys = {
        name: variables[name].strip()
        for name in (*KEYS, *own)
        if len(variables.get(name, "").strip()) >= LEAST_SECRET_CHARS
    }
    return keys | wanted
