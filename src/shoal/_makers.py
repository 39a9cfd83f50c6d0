"""Who can serve models, by the names that `SHOAL_PROVIDER` takes, and what each needs from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import shoal.providers
from shoal.errors import ConfigInvalid
from shoal.providers import ModelProfile, Provider


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """What the environment says of one provider.

    Args:
        key: Its key; `None` where none is set.
        model: The model where a blueprint names none; `None` for none.
        base_url: Where it is asked; `None` for the vendor's own address.
        server: Of a compatible server: the name of its record.
        account: Of a login: the account; `None` where none is set.
        profiles: What the user's settings say of models.
        name: Of a compatible server: the name under which blueprints and spans know it.
    """

    key: str | None
    model: str | None
    base_url: str | None
    server: str
    account: str | None
    profiles: Mapping[str, ModelProfile]
    name: str = "compatible"


@final
@dataclass(frozen=True, slots=True)
class Maker:
    """How one provider is made.

    Args:
        make: Makes it.
        keys: Variables that may hold its key; the first that is set counts. None for a provider that needs no key.
        needs: Says that a key has to be there.
    """

    make: Callable[[Wanted], Provider] = field(repr=False)
    keys: tuple[str, ...] = ()
    needs: bool = True


def _anthropic(wanted: Wanted) -> Provider:
    return shoal.providers.anthropic(wanted.key, model=wanted.model, base_url=wanted.base_url, profiles=wanted.profiles)


def _openai(wanted: Wanted) -> Provider:
    return shoal.providers.openai(wanted.key, model=wanted.model, base_url=wanted.base_url, profiles=wanted.profiles)


def _openai_chat(wanted: Wanted) -> Provider:
    return shoal.providers.openai_chat(
        wanted.key, model=wanted.model, base_url=wanted.base_url, profiles=wanted.profiles
    )


def _codex(wanted: Wanted) -> Provider:
    return shoal.providers.codex(
        wanted.key,
        account_id=wanted.account,
        model=wanted.model,
        base_url=wanted.base_url,
        profiles=wanted.profiles,
    )


def _google(wanted: Wanted) -> Provider:
    return shoal.providers.google(wanted.key, model=wanted.model, base_url=wanted.base_url, profiles=wanted.profiles)


def _compatible(wanted: Wanted) -> Provider:
    if wanted.base_url is None:
        raise ConfigInvalid(
            "`SHOAL_PROVIDER` is 'compatible' and `SHOAL_BASE_URL` is not set; "
            "set it to the server's URL, such as `http://127.0.0.1:8080/v1`"
        )
    return shoal.providers.compatible(
        wanted.base_url,
        api_key=wanted.key,
        model=wanted.model,
        name=wanted.name,
        capabilities=wanted.server,
        profiles=wanted.profiles,
    )


MAKERS: Mapping[str, Maker] = {
    "offline": Maker(lambda _: shoal.providers.offline(), needs=False),
    "anthropic": Maker(_anthropic, ("ANTHROPIC_API_KEY",)),
    "openai": Maker(_openai, ("OPENAI_API_KEY",)),
    "openai-chat": Maker(_openai_chat, ("OPENAI_API_KEY",)),
    "codex": Maker(_codex, ("CODEX_ACCESS_TOKEN",)),
    "google": Maker(_google, ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "compatible": Maker(_compatible, needs=False),
}
"""By name, in the order in which they are listed."""
