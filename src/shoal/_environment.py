"""What the environment says: who serves models, and where the journal lies. Read when asked, never on import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, final

from shoal._beyond import receiver_from
from shoal._config import model_profiles
from shoal._makers import MAKERS, Wanted
from shoal._serving import ProviderSaid, providers_said
from shoal.errors import ConfigInvalid
from shoal.providers import ModelProfile, Provider

PROVIDERS = tuple(MAKERS)
"""What `SHOAL_PROVIDER` may name, one or more with commas between them."""

_ENDPOINTS: Mapping[str, str] = {
    "DEEPSEEK_API_KEY": "https://api.deepseek.com",
    "MISTRAL_API_KEY": "https://api.mistral.ai/v1",
    "OPENROUTER_API_KEY": "https://openrouter.ai/api/v1",
}
"""Keys that people have in their environment for vendors that speak Chat Completions, and where."""

_RECORDS: Mapping[str, str] = {
    "DEEPSEEK_API_KEY": "deepseek",
    "MISTRAL_API_KEY": "mistral",
    "OPENROUTER_API_KEY": "openrouter",
}


KEYS = tuple(dict.fromkeys(("SHOAL_API_KEY", *[key for maker in MAKERS.values() for key in maker.keys], *_ENDPOINTS)))
"""Variables that hold the keys of vendors."""


@final
class FoundKey(NamedTuple):
    """A vendor's key that is set and that nobody asked to use: the variable, and the provider that takes it."""

    variable: str
    provider: str

    @property
    def hint(self) -> str:
        """How to use it, as a beginning of a command."""
        if self.provider != "compatible":
            return f"SHOAL_PROVIDER={self.provider} SHOAL_MODEL=<model>"
        where = f"SHOAL_BASE_URL={_ENDPOINTS[self.variable]} SHOAL_SERVER={_RECORDS[self.variable]}"
        return f"SHOAL_PROVIDER=compatible {where} SHOAL_API_KEY=${self.variable} SHOAL_MODEL=<model>"


def providers_from(environ: Mapping[str, str] | None = None) -> tuple[Provider, ...]:
    """Return who serves models: whom `SHOAL_PROVIDER` names, else whom the settings do, else the offline provider.

    A vendor's key that happens to be set changes nothing by itself.

    Args:
        environ: The variables; `None` takes the process's.

    Returns:
        1 or more; the first serves stages that name nobody.

    Raises:
        ConfigInvalid: `SHOAL_PROVIDER` names nobody, what a provider needs is missing, or the settings are of no use.
    """
    variables = os.environ if environ is None else environ
    said = providers_said(variables)
    named = [name for part in _said(variables, "SHOAL_PROVIDER").split(",") if (name := part.strip())]
    for name in named:
        if name not in MAKERS and name not in said.by_name:
            listed = ", ".join(f"`{known}`" for known in (*PROVIDERS, *(n for n in said.by_name if n not in MAKERS)))
            raise ConfigInvalid(f"`SHOAL_PROVIDER` is {name!r}; set it to one or more of {listed}")
    names = named or list(said.use) or ["offline"]
    profiles = model_profiles(variables)
    alone, first = len(names) == 1, names[0]
    by = "`SHOAL_PROVIDER`" if named else "`providers.use` of the settings"
    return tuple(
        [
            _made(
                name,
                said.by_name.get(name, ProviderSaid()),
                variables,
                profiles,
                by=by,
                alone=alone,
                first=name == first,
            )
            for name in names
        ]
    )


def _made(
    name: str,
    said: ProviderSaid,
    variables: Mapping[str, str],
    profiles: Mapping[str, ModelProfile],
    *,
    by: str,
    alone: bool,
    first: bool,
) -> Provider:
    maker = MAKERS.get(name, MAKERS["compatible"])
    # What is said once is meant for the one provider that there is, or for the server that has no variables of its own.
    own = alone or name == "compatible"
    keys = maker.keys if said.key_env is None else (said.key_env,)
    held = (*(("SHOAL_API_KEY",) if own else ()), *keys)
    key = next((found for variable in held if (found := _said(variables, variable))), None)
    if key is None and (maker.needs or said.key_env is not None):
        listed = " or ".join(f"`{variable}`" for variable in keys)
        raise ConfigInvalid(f"{by} names {name!r} and its key is not set; put it into {listed}")
    model = _said(variables, "SHOAL_MODEL") or None if first else None
    address = _said(variables, "SHOAL_BASE_URL") or None if own else None
    server = _said(variables, "SHOAL_SERVER") or None if own else None
    return maker.make(
        Wanted(
            key,
            model or said.model,
            address or said.base_url,
            server or said.server or "generic",
            _said(variables, "CODEX_ACCOUNT_ID") or None,
            profiles,
            name,
        )
    )


def _said(variables: Mapping[str, str], name: str) -> str:
    return variables.get(name, "").strip()


def found_keys(environ: Mapping[str, str] | None = None) -> tuple[FoundKey, ...]:
    """Return the vendors' keys that are set while the offline provider serves; none where another was asked for."""
    variables = os.environ if environ is None else environ
    if variables.get("SHOAL_PROVIDER", "").strip():
        return ()
    takers = dict.fromkeys(_ENDPOINTS, "compatible")
    for name, maker in MAKERS.items():
        for variable in maker.keys:
            takers.setdefault(variable, name)
    return tuple(FoundKey(key, takers[key]) for key in sorted(takers) if _said(variables, key))


def names_receiver(environ: Mapping[str, str] | None = None) -> bool:
    """Say whether the variables of OpenTelemetry name a receiver of spans."""
    variables = os.environ if environ is None else environ
    return any(_said(variables, f"OTEL_EXPORTER_OTLP_{part}ENDPOINT") for part in ("", "TRACES_"))


def wants_telemetry(environ: Mapping[str, str] | None = None) -> bool:
    """Say whether spans are asked for: variables or settings name a receiver, and the variables switch nothing off.

    Raises:
        ConfigInvalid: The settings are of no use.
    """
    variables = os.environ if environ is None else environ
    off = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    named = names_receiver(variables) or receiver_from(variables) is not None
    return named and not off and variables.get("OTEL_TRACES_EXPORTER", "otlp").strip() in ("", "otlp")


def journal_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the command line keeps its journal: `SHOAL_JOURNAL`, else `shoal/runs.db` in the state folder.

    Raises:
        ConfigInvalid: There is no home folder to put it in.
    """
    variables = os.environ if environ is None else environ
    named = variables.get("SHOAL_JOURNAL", "")
    try:
        if named:
            return Path(named).expanduser()
        state = variables.get("XDG_STATE_HOME", "")
        # A relative one is to be ignored: XDG Base Directory Specification 0.8.
        folder = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    except RuntimeError as exc:
        raise ConfigInvalid("there is no home folder for the journal; name a file with `SHOAL_JOURNAL`") from exc
    return folder / "shoal" / "runs.db"
