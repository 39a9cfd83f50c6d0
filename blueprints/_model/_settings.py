"""What stages and blueprints set alike: models, how a stage is asked again, answers, long histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from shoal.blueprints._model._fields import empty


@final
@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One candidate: *provider* by its name, *model* by the vendor's; `None` is that provider's default model."""

    provider: str
    model: str | None = None

    @classmethod
    def of(cls, said: str) -> ModelChoice:
        """Return the candidate that `provider` or `provider:model` names."""
        provider, _, model = said.partition(":")
        return cls(provider, model or None)


@final
@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models serve a stage, in fallback order, and how they are called.

    Args:
        models: Candidates, best first.
        allow_user_default: The user's default may lead *models*, or serve where there are none.
        timeout_s: Seconds for one call; `None` is the host's.
        max_tokens: Reply budget; `None` is the model's maximum.
        temperature: `None` leaves it to the model.
        parameters: Further fields of the vendor's request body.
    """

    models: tuple[ModelChoice, ...] = ()
    allow_user_default: bool = True
    timeout_s: float | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=empty)

    def led_by(self, preferred: ModelChoice, usual: str | None) -> tuple[ModelChoice, ...]:
        """Return the candidates as they stand for a user who prefers a provider, where they may be moved.

        Those of that provider come first, and of them the preferred model. Nothing is added: whoever wrote the list
        knows which models do.

        Args:
            preferred: What the user prefers; without a model, that provider's candidates keep their order.
            usual: The model that a candidate of that provider means if it names none; `None` for none.
        """

        def place(choice: ModelChoice) -> int:
            if choice.provider != preferred.provider:
                return 2
            return 0 if preferred.model is not None and (choice.model or usual) == preferred.model else 1

        return tuple(sorted(self.models, key=place)) if self.allow_user_default else self.models


@final
@dataclass(frozen=True, slots=True)
class Nudge:
    """How a stage is asked again after a reply that called no tool. `None` inherits: stage, agent, host."""

    enabled: bool | None = None
    max: int | None = None
    text: str | None = None


@final
@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What an answer has to look like.

    Args:
        format: Such as `markdown` or `json`.
        instructions: For the model.
        schema: JSON schema.
        example: For the model.
        validator: Path of a script, relative to the blueprint's folder.
    """

    format: str | None = None
    instructions: str | None = None
    schema: Mapping[str, Any] | None = None
    example: str | None = None
    validator: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Observations:
    """Knobs for long tool histories; `None` takes the profile's value, `forget_after_turns=0` turns that one off."""

    profile: Literal["coding", "chat", "eval"] | None = None
    observation_window: int | None = None
    soft_cap_chars: int | None = None
    hard_cap_chars: int | None = None
    min_tail_turns: int | None = None
    forget_after_turns: int | None = None
    mask_step: int | None = None
