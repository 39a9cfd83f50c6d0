"""Components: the parts of a prompt that are in no region. Each is named, has a place, and says its text or nothing.

What a component says depends on what it is given and on nothing else: facts of the machine are looked up before, and
stand in the run's events. So the same run shows the same bytes again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from shoal.errors import ConfigInvalid
from shoal.providers import Block, Reach, Text, Volatility
from shoal.runtime.context._assemble import Part, Shown
from shoal.runtime.context._entry import estimate_text, size

Layer: TypeAlias = Literal["L0", "L1", "L2"]
Facts: TypeAlias = Mapping[str, Mapping[str, str]]
"""What was looked up for components, by the component's name."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_LAYERS: Mapping[str, int] = {"L0": 0, "L1": 1, "L2": 2}
_CALL = _LAYERS["L2"]


@final
@dataclass(frozen=True, slots=True)
class Inside:
    """The call of a model by an agentic function, as components know it.

    Args:
        function: The function.
        job: What it does, one sentence; empty where it does not say.
        path: The functions from the run's own to this one, this one included.
        system: What the function says of itself to every model that it asks; empty for nothing.
        position: Where in the function the call stands; empty where it does not say.
        output: What becomes of the answer, one sentence; empty where nothing is said.
        recalled: What memory holds of what is asked; empty for nothing.
        input: What is asked.
        schema: JSON schema of the answer; empty for none.
        time: When the call was made, such as `2026-06-24T14:33:02Z`; empty where that was not asked for.
    """

    function: str
    job: str = ""
    path: tuple[str, ...] = ()
    system: str = ""
    position: str = ""
    output: str = ""
    recalled: str = ""
    input: str = ""
    schema: str = ""
    time: str = ""


@final
@dataclass(frozen=True, slots=True)
class Surroundings:
    """What components make their texts of.

    Args:
        run_id: The run.
        blueprint: Name of its blueprint.
        description: What the blueprint is for; empty where it does not say.
        stage: The stage.
        provider: Who serves it.
        model: Its model.
        tools: Names of the tools on offer, sorted.
        deferred: Names of the tools that the stage may load, sorted; those that it has loaded are among them.
        components: Names of the components that the blueprint uses.
        workdir: The run's working directory.
        read_paths: What may be read besides, as the blueprint writes it.
        facts: What was looked up when the run began, by component.
        date: The day of the newest event in UTC, such as `2026-06-24`.
        inside: The call of a model by an agentic function; `None` in a stage of a blueprint.
    """

    run_id: str
    blueprint: str
    description: str
    stage: str
    provider: str
    model: str
    tools: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    workdir: str = ""
    read_paths: tuple[str, ...] = ()
    facts: Facts = field(default_factory=dict[str, Mapping[str, str]])
    date: str = "1970-01-01"
    inside: Inside | None = None


def always(around: Surroundings) -> bool:
    """Return true: for a component that is always there."""
    return True


@final
@dataclass(frozen=True, slots=True)
class ContextComponent:
    """A part of the prompt that is in no region.

    Args:
        name: Its name, which is its owner in every account of the prompt.
        layer: `L0` is the same for all runs of a swarm and stands in front; `L1` belongs to the run; `L2` belongs to
            one call of a model by an agentic function, opens its message, and is in no later request.
        order: Its place in the layer; the smaller, the earlier, and the steadier it should be.
        condition: Says whether it is there at all.
        build: Returns its text; `None` or an empty text for nothing.
        cacheable: False ends the prefix that a cache may hold.
        reach: Where the same text may stand: in any run, in this run only, or in this stage only.

    Raises:
        ConfigInvalid: The name is none, or there is no such layer.
    """

    name: str
    layer: Layer
    order: int
    condition: Callable[[Surroundings], bool]
    build: Callable[[Surroundings], str | None]
    cacheable: bool = True
    reach: Reach = "any"

    def __post_init__(self) -> None:
        """Check it."""
        if not _NAME.fullmatch(self.name):
            raise ConfigInvalid(f"{self.name!r} cannot name a component; use small letters, digits, `_` and `-`")
        if self.layer not in _LAYERS:
            raise ConfigInvalid(f"the component {self.name!r} has the layer {self.layer!r}; write `L0`, `L1` or `L2`")

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among the blocks of the system section."""
        return _LAYERS[self.layer], self.order


@final
class Components:
    """The components that a swarm knows, by name. Nothing of it is shared between swarms.

    Args:
        known: Those that it begins with.
    """

    def __init__(self, known: Iterable[ContextComponent] = ()) -> None:
        self._known = {component.name: component for component in known}

    def __repr__(self) -> str:
        return f"<Components {', '.join(self._known)}>"

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[ContextComponent]:
        return iter(sorted(self._known.values(), key=lambda each: (each.place, each.name)))

    def register(self, component: ContextComponent) -> None:
        """Add *component*.

        Raises:
            ConfigInvalid: There is one of that name.
        """
        if component.name in self._known:
            raise ConfigInvalid(
                f"there is a component {component.name!r} already; give this one another name, or `replace` that one"
            )
        self._known[component.name] = component

    def replace(self, component: ContextComponent) -> None:
        """Put *component* in the place of the one of its name.

        Raises:
            ConfigInvalid: There is none, or it stands in the other layer.
        """
        known = self._known.get(component.name)
        if known is None:
            raise ConfigInvalid(f"there is no component {component.name!r} to replace; `register` it")
        if known.layer != component.layer:
            raise ConfigInvalid(
                f"the component {component.name!r} stands in {known.layer!r} and would move to {component.layer!r}; "
                "one name has one layer, so give it another name"
            )
        self._known[component.name] = component

    def unregister(self, name: str) -> None:
        """Take the component *name* out; one that is not there is no error."""
        self._known.pop(name, None)

    def used(self, names: Sequence[str]) -> tuple[ContextComponent, ...]:
        """Return those of *names* that are known, in the order of the prompt."""
        return tuple(component for component in self if component.name in names)


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """A component that raised, and what."""

    name: str
    error: str


def tagged(tag: str, text: str) -> str:
    r"""Return *text* between the tags of a block; a closing tag of that name inside it gets a backslash."""
    safe = re.sub(rf"</(?={re.escape(tag)}\s*>)", r"<\\/", text)
    return f"<{tag}>\n{safe.strip()}\n</{tag}>"


def stand(
    components: Sequence[ContextComponent], around: Surroundings
) -> tuple[tuple[tuple[tuple[int, int], Shown], ...], tuple[Failed, ...]]:
    """Return the blocks of *components*, each with its place, and those that raised, which are left out."""
    said, failed = _built([each for each in components if each.place[0] != _CALL], around)
    return tuple([(component.place, _shown(component, text)) for component, text in said]), failed


def opening(
    components: Sequence[ContextComponent], around: Surroundings
) -> tuple[tuple[tuple[str, Text], ...], tuple[Failed, ...]]:
    """Return what opens the message of a call: names and texts in order, and the components that raised."""
    said, failed = _built([each for each in components if each.place[0] == _CALL], around)
    return tuple([(component.name, Text.of(text)) for component, text in said]), failed


def _built(
    components: Sequence[ContextComponent], around: Surroundings
) -> tuple[list[tuple[ContextComponent, str]], tuple[Failed, ...]]:
    made: list[tuple[ContextComponent, str]] = []
    failed: list[Failed] = []
    for component in components:
        try:
            text = component.build(around) if component.condition(around) else None
        except Exception as exc:  # noqa: BLE001 - whatever it raises, the run goes on without it
            failed.append(Failed(component.name, f"{type(exc).__name__}: {exc}"))
            continue
        if text:
            made.append((component, text))
    return made, tuple(failed)


def _shown(component: ContextComponent, text: str) -> Shown:
    volatility: Volatility = "stable" if component.place < (1, 100) else "rewritten"
    return _made(component.name, text, volatility, component.reach, cacheable=component.cacheable)


@functools.lru_cache(maxsize=1024)
def _made(name: str, text: str, volatility: Volatility, reach: Reach, *, cacheable: bool) -> Shown:
    """Return a component's block; runs that say the same share it, and with it its encoded form."""
    said = Text.of(text)
    tokens = max(1, estimate_text(said))
    block = Block(name, (said,), tokens, volatility, cacheable, reach=reach)
    return Shown((block,), (Part(name, tokens, cacheable=cacheable),), tokens, size(said)[0])
