"""Which models serve a stage or a lane, in every form that a file may use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast, final

from shoal.blueprints._codec import (
    BAD,
    Bad,
    Codec,
    Flag,
    Json,
    ListOf,
    Number,
    Soft,
    Text,
    Whole,
    is_list,
    is_mapping,
    is_sequence,
    is_table,
    refuse,
)
from shoal.blueprints._model import ModelChoice, ModelSettings
from shoal.blueprints._record import Key, Record
from shoal.blueprints._report import Report
from shoal.blueprints._toml import Path

PEER_PROVIDER = "anthropic"
"""What the other runtime takes where a candidate names no provider."""

_MODEL_WANTS = '`"provider:model"`, or a table with `provider` and `model`'


@final
class _ChoiceRecord(Record):
    """A table with `provider` and `model`; without the second the provider's default model is meant."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        if "provider" not in found:
            made = choice_of(None, None, path, report)
            found["provider"] = made if isinstance(made, Bad) else made.provider


def choice_of(provider: object, model: object, path: Path, report: Report) -> ModelChoice | Bad:
    """Return the candidate of a *provider* and a *model* that were read apart; `None` for one that is not written."""
    if BAD in (provider, model):
        return BAD
    if provider is None and report.peer:
        provider = PEER_PROVIDER
    if not isinstance(provider, str):
        report.error("missing-key", path, "`provider` is missing; write it beside `model`", at="key")
        return BAD
    return ModelChoice(provider, model if isinstance(model, str) else None)


_CHOICE = _ChoiceRecord(ModelChoice, Key("provider", Text()), Key("model", Text()), lenient=True)


@final
class OneModel:
    """One candidate: `"provider:model"`, or a table with `provider` and `model`."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the candidate. A model's name may have colons, a provider's may not."""
        if is_table(value):
            return _CHOICE.read(value, path, report)
        if not isinstance(value, str):
            return refuse(value, _MODEL_WANTS, path, report)
        provider, _, model = value.partition(":")
        if provider.strip() and model.strip():
            return ModelChoice(provider, model)
        return refuse(value, _MODEL_WANTS, path, report, id_="bad-value")

    def write(self, value: object) -> object:
        """Return the candidate, short where the short form says the same."""
        short = isinstance(value, ModelChoice) and f"{value.provider}:{value.model}"
        if short and OneModel().read(short, ("model",), Report()) == value:
            return short
        return _CHOICE.write(value)


@final
class _SettingsRecord(Record):
    """The long form, with what else the stage's calls need."""

    def complete(self, found: dict[str, object], table: Mapping[str, object], path: Path, report: Report) -> None:
        self._lift(found, path, report)
        self._single(found, path, report)

    def explode(self, value: Any) -> dict[str, object]:
        fields = super().explode(value)
        table: dict[str, object] = {name: fields.pop(name) for name in ("temperature", "max_tokens") if name in fields}
        further = fields.get("parameters", {})
        if table and is_mapping(further):
            fields["parameters"] = table | dict(further)
        return fields

    @staticmethod
    def _lift(found: dict[str, object], path: Path, report: Report) -> None:
        """Take out of `parameters` what has a field of its own."""
        parameters = found.get("parameters")
        if not is_mapping(parameters):
            return
        for name, (attr, codec) in _LIFTED.items():
            if name not in parameters:
                continue
            here = (*path, "parameters", name)
            if attr in found:
                message = f"`{name}` and `max_tokens` are the same parameter; keep one of them"
                report.error("conflicting-keys", here, message, at="key")
            found[attr] = codec.read(parameters[name], here, report)
        rest = {name: value for name, value in parameters.items() if name not in _LIFTED}
        found["parameters"] = MappingProxyType(rest)

    @staticmethod
    def _single(found: dict[str, object], path: Path, report: Report) -> None:
        """Make candidates of the spelling with `provider`, `model` and `fallbacks`."""
        if not any(name in found for name in _SINGLE):
            return
        provider, model, fallbacks = (found.pop(name, None) for name in _SINGLE)
        if "models" in found:
            message = "`models` stands beside `provider`, `model` or `fallbacks`; keep `models`"
            report.error("conflicting-keys", (*path, "models"), message, at="key")
            return
        first = choice_of(provider, model, path, report)
        rest = fallbacks if is_sequence(fallbacks) else ()
        found["models"] = tuple(choice for choice in (first, *rest) if choice is not BAD)


_SINGLE = ("single.provider", "single.model", "single.fallbacks")
_LIFTED: Mapping[str, tuple[str, Codec]] = {
    "temperature": ("temperature", Number(zero=True)),
    "max_tokens": ("max_tokens", Whole(1)),
    "max_output_tokens": ("max_tokens", Whole(1)),
}
_IN_PARAMETERS = ("unknown-key", "is a parameter of the model; write it in `parameters`")
_SETTINGS = _SettingsRecord(
    ModelSettings,
    Key("models", ListOf(OneModel(), least=1)),
    Key("allow_user_default", Flag()),
    Key("timeout_s", Soft(Number()), also=("request_timeout_secs",)),
    Key("parameters", Json()),
    Key("provider", Text(), "single.provider", writes=False),
    Key("model", Text(), "single.model", writes=False),
    Key("fallbacks", ListOf(OneModel()), "single.fallbacks", writes=False),
    lenient=True,
    elsewhere={
        "system_prompt": ("unknown-key", "is ignored in a model; write it in the stage"),
        "temperature": _IN_PARAMETERS,
        "max_tokens": _IN_PARAMETERS,
        "max_output_tokens": _IN_PARAMETERS,
    },
)


@final
class Models:
    """Candidates and settings: `"provider:model"`, a list of candidates, or a table."""

    __slots__ = ()

    def read(self, value: object, path: Path, report: Report) -> object:
        """Return the settings."""
        if is_table(value):
            return _SETTINGS.read(value, path, report)
        read: tuple[object, ...] | Bad
        if isinstance(value, str):
            one = OneModel().read(value, path, report)
            read = BAD if one is BAD else (one,)
        elif is_list(value):
            read = ListOf(OneModel(), least=1).read(value, path, report)
        else:
            read = refuse(value, f"{_MODEL_WANTS}, or a list of these", path, report)
        return BAD if isinstance(read, Bad) else ModelSettings(models=cast("tuple[ModelChoice, ...]", read))

    def write(self, value: object) -> object:
        """Return the settings in the shortest form that says them."""
        written = _SETTINGS.write(value)
        if not is_table(written) or written.keys() != {"models"} or not is_list(written["models"]):
            return written
        models = written["models"]
        return models[0] if len(models) == 1 and isinstance(models[0], str) else models
