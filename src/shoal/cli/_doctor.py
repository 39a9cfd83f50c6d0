"""`shoal doctor`: whether everything is there that runs need, and how to mend what is not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from rich.text import Text

from shoal._beyond import memory_from, receiver_from, servers_from
from shoal._config import config_files, model_profiles
from shoal._environment import found_keys, providers_from, wants_telemetry
from shoal._granted import permissions_from
from shoal._narrowing import lanes_from, limits_from, pools_from
from shoal._serving import providers_said
from shoal.cli._places import JournalOption, JsonOption, journal_file
from shoal.cli._print import line, print_json, print_table, say
from shoal.errors import ConfigInvalid, ProviderError, ProviderSetup, ShoalError
from shoal.providers import Provider, VendorProvider, counter, list_source, list_trouble, shipped_source
from shoal.runtime import SqliteReader

Status: TypeAlias = Literal["ok", "note", "failed"]

FAILED = 1
ASK_S = 15.0
CONNECT_S = 3.0
LARGE_BYTES = 4 * 1024**3

_STYLES = {"ok": "green", "note": "yellow", "failed": "red"}
_ENCODINGS = ("tiktoken:o200k_base", "tiktoken:cl100k_base")
_RECEIVERS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it stands, what was found, and what to do; empty where there is nothing."""

    check: str
    status: Status
    said: str
    remedy: str = ""


def command(*, journal: JournalOption = None, as_json: JsonOption = False) -> int:
    """Check settings, providers, token vocabularies, the journal and telemetry, in this order."""
    checks = anyio.run(_all, journal)
    sound = all(check.status != "failed" for check in checks)
    if as_json:
        print_json({"ok": sound, "checks": [asdict(check) for check in checks]})
        return 0 if sound else FAILED
    rows = [(check.check, Text(check.status, _STYLES[check.status]), line(check.said)) for check in checks]
    print_table(("what", "status", "found"), rows)
    mends = [f"{check.check}: {line(check.remedy)}" for check in checks if check.remedy]
    if mends:
        say("", *mends)
    return 0 if sound else FAILED


async def _all(journal: Path | None) -> Sequence[Check]:
    return [
        _settings(),
        _models(),
        *await _providers(),
        *_keys(),
        *[await anyio.to_thread.run_sync(_vocabulary, name) for name in _ENCODINGS],
        _journal(journal),
        await _telemetry(),
    ]


# --- each of them


def _settings() -> Check:
    try:
        profiles, _ = model_profiles(), permissions_from()
        _, _, _, preferred = limits_from(), pools_from(), lanes_from(), providers_said().default_model
        servers, memory, _ = servers_from(), memory_from(), receiver_from()
    except ConfigInvalid as error:
        return Check("settings", "failed", str(error), "Mend the file, or take the table out.")
    there = [str(path) for path in config_files() if path.exists()]
    if not there:
        return Check("settings", "ok", "no file of settings; defaults hold")
    named = {"models": tuple(profiles), "MCP servers": tuple(server.name for server in servers)}
    said = [f"{what}: {', '.join(names) or 'none'}" for what, names in named.items() if names or what == "models"]
    if preferred is not None:
        said.append(f"default model: {preferred}")
    if memory is not None:
        said.append(f"memory: {memory}")
    return Check("settings", "ok", "; ".join((", ".join(there), *said)))


def _models() -> Check:
    maintained, trouble = list_source(), list_trouble()
    if trouble is not None:
        said = f"the list of `shoal[prices]` cannot be used ({trouble}); {shipped_source()} holds where it cannot"
        return Check("models", "note", said, "Install `shoal[prices]` again, or uninstall `genai-prices`.")
    if maintained is None:
        return Check("models", "ok", f"{shipped_source()}; `shoal[prices]` adds a list that is maintained")
    return Check("models", "ok", f"windows and prices: {maintained}; else: {shipped_source()}")


async def _providers() -> list[Check]:
    try:
        providers = providers_from()
    except ConfigInvalid as error:
        return [Check("providers", "failed", str(error), "Set what is missing; see `docs/configuration.md`.")]
    return [await _provider(provider) for provider in providers]


async def _provider(provider: Provider) -> Check:
    name = f"provider {provider.name}"
    model = _known_of(provider)
    try:
        if not isinstance(provider, VendorProvider):
            return Check(name, "ok", f"embedded; {model}")
        with anyio.fail_after(ASK_S):
            answers = await provider.check()
    except ProviderSetup as error:
        return Check(name, "failed", str(error), error.remedy)
    except ProviderError as error:
        return Check(name, "failed", str(error), "Check the address and the network, and that the server runs.")
    except TimeoutError:
        return Check(name, "failed", f"no answer within {ASK_S:.0f} s", "Check the address and the network.")
    finally:
        await provider.aclose()
    if not answers:
        return Check(name, "note", f"{model}; it has nothing that could be asked for free")
    return Check(name, "ok", f"answers; {model}")


def _known_of(provider: Provider) -> str:
    """Return the default model of *provider* with its window and its price, and who says so."""
    if not provider.default_model:
        return "no default model"
    profile = provider.profile(provider.default_model)
    price = "no price"
    if profile.price is not None:
        price = f"USD {profile.price.input:f} in and {profile.price.output:f} out a million ({profile.price.source})"
    return f"{provider.default_model}: {profile.window_tokens:,} tokens ({profile.window_source}), {price}"


def _keys() -> list[Check]:
    return [
        Check(f"key {found.variable}", "note", "set, and nobody uses it", f"To use it: `{found.hint} shoal run …`.")
        for found in found_keys()
    ]


def _vocabulary(name: str) -> Check:
    if not counter(name).estimates:
        return Check(name, "ok", "on this machine")
    remedy = "Install `shoal[tokens]` to count by it; nothing is downloaded by itself."
    return Check(name, "note", "not on this machine: bytes / 4 counts", remedy)


def _journal(given: Path | None) -> Check:
    try:
        path = journal_file(given)
        if not path.exists():
            return Check("journal", "ok", f"{path}: not made yet")
        size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        reader = SqliteReader(path)
        try:
            runs = len(reader.runs())
        finally:
            reader.close()
    except (OSError, ShoalError) as error:
        return Check(
            "journal", "failed", str(error), "Name another file with `SHOAL_JOURNAL`, or make this one readable."
        )
    said = f"{path}: {runs} runs, {size / 1024**2:.1f} MB"
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return Check("journal", "failed", f"{said}, which cannot be written", "Give yourself the right to write there.")
    if size > LARGE_BYTES:
        return Check("journal", "note", said, "`shoal prune` deletes what is old.")
    return Check("journal", "ok", said)


async def _telemetry() -> Check:
    try:
        wanted = wants_telemetry()
    except ConfigInvalid as error:
        return Check("telemetry", "failed", str(error), "Mend the file, or take the table out.")
    if not wanted:
        return Check("telemetry", "ok", "nobody asked for spans")
    receiver = receiver_from()
    endpoint = next((said for name in _RECEIVERS if (said := os.environ.get(name, "").strip())), "")
    endpoint = endpoint or ("" if receiver is None else receiver.endpoint)
    try:
        address = urlsplit(endpoint)
        port = address.port or (443 if address.scheme == "https" else 80)
        with anyio.fail_after(CONNECT_S):
            stream = await anyio.connect_tcp(address.hostname or "", port)
        await stream.aclose()
    except (OSError, TimeoutError, ValueError) as error:
        why = f"{address_of(endpoint)} does not answer ({str(error) or type(error).__name__})"
        return Check("telemetry", "failed", why, "Start the receiver, or unset the variable that names it.")
    return Check("telemetry", "ok", f"{address_of(endpoint)} takes connections")


def address_of(endpoint: str) -> str:
    """Return where *endpoint* leads, without what may be a password."""
    return endpoint.rpartition("@")[2] if "@" in endpoint else endpoint
