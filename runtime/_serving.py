"""Who serves a stage: the providers of a swarm, their models and their circuit breakers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from shoal.blueprints import ModelChoice, ModelSettings
from shoal.errors import ConfigInvalid, SpawnRefused
from shoal.providers import Breaker, Provider
from shoal.runtime._host import Serving


@final
class Servants:
    """The providers of a swarm.

    Args:
        providers: The providers, 1 or more; the first serves stages that name none.
        clock: Monotonic seconds, for the breakers.
    """

    def __init__(self, providers: Sequence[Provider], clock: Callable[[], float]) -> None:
        self._by_name = {provider.name: provider for provider in providers}
        if len(self._by_name) < len(providers) or not providers:
            names = ", ".join(repr(provider.name) for provider in providers) or "none"
            raise ConfigInvalid(
                f"a swarm needs providers with a name each, and was given {names}; name each differently"
            )
        self._first = providers[0]
        # A provider that stands in serves what no other provider here does, and says so in every reply.
        self._stand_in = next((p for p in providers if getattr(p, "stands_in", False)), None)
        self._breakers = {name: Breaker(clock=clock) for name in self._by_name}
        self._served: dict[tuple[str, str], Serving] = {}

    def __repr__(self) -> str:
        return f"<Servants {', '.join(self._by_name)}>"

    @property
    def providers(self) -> Sequence[Provider]:
        """The providers, in the order in which they were given."""
        return tuple(self._by_name.values())

    @property
    def healthy(self) -> bool:
        """At least one provider's breaker lets requests through."""
        return any(breaker.state == "closed" for breaker in self._breakers.values())

    def breaker(self, provider: str) -> Breaker:
        """Return the circuit breaker of *provider*."""
        return self._breakers[provider]

    def reconsider(self, provider: str) -> None:
        """Let the next request to *provider*, if it is here, go out though others failed."""
        breaker = self._breakers.get(provider)
        if breaker is not None:
            breaker.retry_now()

    def check_default(self, default: str) -> None:
        """Refuse a model that a user prefers where no provider here has its provider's name.

        Raises:
            ConfigInvalid: See above.
        """
        if ModelChoice.of(default).provider not in self._by_name:
            known = ", ".join(f"`{name}`" for name in self._by_name)
            raise ConfigInvalid(
                f"`default_model` is {default!r}, and this swarm has {known}; write one of them, with `:MODEL` behind "
                "it if you like, or add that provider"
            )

    def of(
        self, settings: ModelSettings | None, override: str | None = None, default: str | None = None
    ) -> tuple[Serving, ...]:
        """Return who may serve a stage with *settings*, best first.

        Args:
            settings: What the stage says; `None` for nothing.
            override: `provider:model` that wins over all; `None` for none.
            default: `provider` or `provider:model` that the user prefers; it counts where *settings* let it, and where
                that provider is here. `None` for none.

        Raises:
            SpawnRefused: Nobody can; the message says what was tried.
        """
        choices = (ModelChoice.of(override),) if override is not None else self._choices(settings, default)
        # Nobody stands in for what a user asks for by name.
        found = [serving for choice in choices for serving in self._serve(choice, stand_in=override is None)]
        if not found:
            tried = ", ".join(f"{choice.provider}:{choice.model or 'its default'}" for choice in choices)
            known = ", ".join(self._by_name)
            raise SpawnRefused(f"no provider here serves {tried}; this swarm has {known}: name one of them, or add it")
        return tuple(dict.fromkeys(found))

    def _choices(self, settings: ModelSettings | None, default: str | None) -> Sequence[ModelChoice]:
        said = settings or ModelSettings()
        preferred = None if default is None else ModelChoice.of(default)
        provider = None if preferred is None else self._by_name.get(preferred.provider)
        # One whose provider is not here moves nothing: who stands in for it would only be called by another name.
        if preferred is None or provider is None or not said.allow_user_default:
            return said.models or (ModelChoice(self._first.name),)
        return said.led_by(preferred, provider.default_model) or (preferred,)

    def _serve(self, choice: ModelChoice, *, stand_in: bool) -> Sequence[Serving]:
        provider = self._by_name.get(choice.provider)
        if provider is None and stand_in:
            provider = self._stand_in
        if provider is None:
            return ()
        model = choice.model or provider.default_model
        if model is None:
            raise SpawnRefused(
                f"provider {provider.name!r} has no default model; name one as {provider.name + ':MODEL'!r}"
            )
        key = (provider.name, model)
        serving = self._served.get(key)
        if serving is None:
            serving = self._served[key] = Serving(provider, model, provider.profile(model))
        return (serving,)
