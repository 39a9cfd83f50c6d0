"""What the environment says: who serves models, and where the journal lies. Read when asked, never on import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, final

from shoal.errors import ConfigInvalid
from shoal.providers import Provider, compatible, offline

PROVIDERS = ("offline", "compatible")
"""What `SHOAL_PROVIDER` may name."""

_ENDPOINTS: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "https://api.anthropic.com/v1",
    "DEEPSEEK_API_KEY": "https://api.deepseek.com",
    "GEMINI_API_KEY": "https://generativelanguage.googleapis.com/v1beta/openai",
    "MISTRAL_API_KEY": "https://api.mistral.ai/v1",
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "OPENROUTER_API_KEY": "https://openrouter.ai/api/v1",
}
"""Keys that people have in their environment, and where each vendor speaks Chat Completions."""


@final
class FoundKey(NamedTuple):
    """A vendor's key that is set and that nobody asked to use: the variable, and the URL it would be good for."""

    variable: str
    base_url: str

    @property
    def hint(self) -> str:
        """How to use it, as a beginning of a command."""
        words = ("SHOAL_PROVIDER=compatible", f"SHOAL_BASE_URL={self.base_url}", f"SHOAL_API_KEY=${self.variable}")
        return " ".join((*words, "SHOAL_MODEL=<model>"))


def providers_from(environ: Mapping[str, str] | None = None) -> tuple[Provider, ...]:
    """Return who serves models: the offline provider, unless `SHOAL_PROVIDER` names another.

    A vendor's key that happens to be set changes nothing.

    Args:
        environ: The variables; `None` takes the process's.

    Raises:
        ConfigInvalid: `SHOAL_PROVIDER` names nobody, or what its provider needs is missing.
    """
    variables = os.environ if environ is None else environ
    wanted = variables.get("SHOAL_PROVIDER", "").strip() or "offline"
    if wanted == "offline":
        return (offline(),)
    if wanted != "compatible":
        raise ConfigInvalid(f"`SHOAL_PROVIDER` is {wanted!r}; set it to `offline` or `compatible`")
    base_url = variables.get("SHOAL_BASE_URL", "").strip()
    if not base_url:
        raise ConfigInvalid(
            "`SHOAL_PROVIDER` is 'compatible' and `SHOAL_BASE_URL` is not set; "
            "set it to the server's URL, such as `http://127.0.0.1:8080/v1`"
        )
    model = variables.get("SHOAL_MODEL", "").strip() or None
    key = variables.get("SHOAL_API_KEY", "").strip() or None
    return (compatible(base_url, api_key=key, model=model, name="compatible"),)


def found_keys(environ: Mapping[str, str] | None = None) -> tuple[FoundKey, ...]:
    """Return the vendors' keys that are set while the offline provider serves; none where another was asked for."""
    variables = os.environ if environ is None else environ
    if variables.get("SHOAL_PROVIDER", "").strip():
        return ()
    return tuple(FoundKey(name, url) for name, url in _ENDPOINTS.items() if variables.get(name, "").strip())


def wants_telemetry(environ: Mapping[str, str] | None = None) -> bool:
    """Say whether the variables of OpenTelemetry ask for spans: they name a receiver, and switch nothing off."""
    variables = os.environ if environ is None else environ
    off = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    named = any(variables.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT", "").strip() for part in ("", "TRACES_"))
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
