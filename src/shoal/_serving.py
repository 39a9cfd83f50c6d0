"""Who serves models, as the user's settings say: the table `[providers]`.

Addresses and the names of keys count from the user's own file only: a stranger's folder must not send prompts, or a
key, where it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

import msgspec

from shoal._config import users_table
from shoal._makers import MAKERS
from shoal.blueprints import ModelChoice
from shoal.errors import ConfigInvalid
from shoal.providers import Provider


@final
class ProviderSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the settings say of one provider.

    Args:
        model: The model where a blueprint names none; `None` for none.
        base_url: Where it is asked; `None` for the vendor's own address.
        key_env: The variable that holds its key; `None` for the vendor's usual one.
        server: Of a compatible server: the name of its record.
    """

    model: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    server: str | None = None


@final
class ProvidersSaid(msgspec.Struct, frozen=True):
    """What the settings say of providers.

    Args:
        use: Which serve; the first serves stages that name none.
        default_model: What the user prefers, as `provider` or `provider:model`; `None` for nothing.
        by_name: What is said of each.
    """

    use: tuple[str, ...] = ()
    default_model: str | None = None
    by_name: Mapping[str, ProviderSaid] = {}


def providers_said(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> ProvidersSaid:
    """Return what the user's settings say of providers.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: A file cannot be read, or says what is of no use.
    """
    path, tables = users_table("providers", environ, workdir)
    by_name: dict[str, ProviderSaid] = {}
    where = "providers"
    try:
        use = msgspec.convert(tables.pop("use", ()), tuple[str, ...])
        default_model = msgspec.convert(tables.pop("default_model", None), str | None)
        for name, table in tables.items():
            where = f"providers.{name}"
            by_name[name] = msgspec.convert(table, ProviderSaid)
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"`[{where}]` in {str(path)!r} is of no use: {exc}; mend the file") from exc
    for name, provider in by_name.items():
        if name not in MAKERS and provider.base_url is None:
            listed = ", ".join(f"`{known}`" for known in MAKERS)
            raise ConfigInvalid(
                f"`[providers.{name}]` in {str(path)!r} is a server of your own and has no `base_url`; write where it"
                f" is, or one of {listed}"
            )
    named = [("use", name) for name in use]
    if default_model is not None:
        named.append(("default_model", ModelChoice.of(default_model).provider))
    for key, name in named:
        if name not in MAKERS and name not in by_name:
            listed = ", ".join(f"`{known}`" for known in dict.fromkeys((*MAKERS, *by_name)))
            raise ConfigInvalid(f"`providers.{key}` in {str(path)!r} names {name!r}; write one of {listed}")
    return ProvidersSaid(use, default_model, by_name)


def default_model_from(
    providers: Sequence[Provider], environ: Mapping[str, str] | None = None, workdir: Path | None = None
) -> str | None:
    """Return what the settings say that the user prefers, where it is one of *providers*; else `None`.

    Raises:
        ConfigInvalid: The settings are of no use.
    """
    said = providers_said(environ, workdir).default_model
    here = {provider.name for provider in providers}
    return said if said is not None and ModelChoice.of(said).provider in here else None
