"""What the offline provider does: the steps of a policy, or a default where a blueprint gives none.

Pure and without memory: where a visit of a stage stands is read from the request, so the same request has the same
answer, after a resume too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, final

import msgspec

from shoal.errors import OfflinePolicyMissing
from shoal.providers._extract import extract, summarise, title, words_of
from shoal.providers._json import as_list, as_object
from shoal.providers._template import Fill, filled, spread, spreads_items, with_item
from shoal.providers._values import OWN_WORD, Message, PolicyStep, Request, Situation, ToolSpec

CLOSING = "Done. No language model was used: this stage followed its offline policy."
DEFAULT_SENTENCES = 6
_NOTHING_SAID = "Nothing was said here."
_MOST_TRIES = 2  # a refusal may be about something else that is done by then

_NAMED = re.compile(r"(region|result|extract)\(([^()]*)\)")

_CONTINUED = re.compile(r"\n?\[continue with (\w+)=([^\]\n]*)\]\s*\Z")


@final
class Decision(msgspec.Struct, frozen=True):
    """What to answer.

    Args:
        text: What is said.
        calls: Tools to call with their arguments, in order.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


@final
class Answered(msgspec.Struct, frozen=True):
    """One earlier answer of this visit, with what its calls gave."""

    message: Message
    results: tuple[Message, ...]

    def text(self, *, errors: bool = True) -> str:
        """Return what its calls gave, in their order; without *errors*, only of those that did not fail."""
        results = [result for result in self.results if errors or not result.is_error]
        return "\n".join([_CONTINUED.sub("", result.text) for result in results])


_Ran: TypeAlias = Mapping[int, Sequence[Answered | None]]


def decide(request: Request, situation: Situation) -> Decision:
    """Return what to answer *request*.

    Raises:
        OfflinePolicyMissing: The policy, or the default where there is none, cannot go on.
    """
    match request.purpose:
        case "titling":
            return Decision(title(situation.task or _said(request)))
        case "compaction":
            material = _said(request) if situation.material is None else situation.material
            return Decision(summarise(material, request.max_tokens) or _NOTHING_SAID)
        case "routing":
            return Decision(_Visit(request, situation).route())
        case _:
            visit = _Visit(request, situation)
            return visit.default() if situation.policy is None else visit.next(situation.policy)


@final
class _Visit:
    """A visit of a stage, as a request shows it."""

    def __init__(self, request: Request, situation: Situation) -> None:
        self._request = request
        self._situation = situation
        self._tools = {spec.name: spec for spec in request.tools.specs}
        self._answers = _answers(request, situation.iteration)

    # --- with a policy

    def next(self, policy: Sequence[PolicyStep]) -> Decision:
        """Return what the next step of *policy* says; when all have run, the owed output or a closing text."""
        at, ran = self._progress(policy)
        page = self._answers[-1] if at in ran else None
        if page is not None:
            return Decision(calls=tuple(_next_pages(page)))
        fill = self._fill(at, ran)
        source = self._fill(at, ran, errors=False)  # what a failed call says is no item
        for step in policy[at:]:
            decision = None if step.route is not None else self._run(step, fill, source)
            if decision is not None:
                return decision
        return self._output() or Decision(CLOSING)

    def _progress(self, policy: Sequence[PolicyStep]) -> tuple[int, _Ran]:
        """Return the index of the step to run, and the answers of each step that ran; one that goes on too.

        Iterations and steps go side by side. Routing steps answer no iteration, and a `for_each` step that had no
        items answered none either: that is seen from an answer that it cannot have given. A step whose results go on
        answers one iteration a page. Of answers that have left the window, which are the oldest, a step of several
        pages is taken to have given as many as it may, as long as the first answer that is left is of its tool.
        """
        left = next((answer for answer in self._answers if answer is not None), None)
        at = 0
        ran: dict[int, list[Answered | None]] = {}
        for answer in self._answers:
            while at < len(policy) and _passed_over(policy[at], answer):
                at += 1
            pages = ran.setdefault(at, [])
            pages.append(answer)
            if at >= len(policy) or len(pages) >= policy[at].pages or not _goes_on(policy[at], answer, left):
                at += 1
        return at, ran

    def _run(self, step: PolicyStep, fill: Fill, source: Fill) -> Decision | None:
        """Return what *step* says; `None` where it has no items to work on."""
        if step.call is not None:
            self._offered(step.call)
            if step.for_each is None:
                return Decision(calls=((step.call, filled(step.args, fill)),))
            return self._run_each(step.call, step.args, items_of(self._named(step.for_each, source)), fill)
        if step.extract is not None:
            return self._hand_over(extract(fill(f"region({step.extract})"), step.sentences), step.into)
        if step.say is not None:
            return Decision(filled(step.say, fill).strip() or "There was nothing to say.")
        return self._missing("policy", "a step has none of `call`, `extract`, `say` and `route`")

    def _run_each(self, call: str, args: Mapping[str, Any], items: list[str], fill: Fill) -> Decision | None:
        if not items:
            return None
        if spreads_items(args):
            return Decision(calls=((call, spread(args, fill, items)),))
        return Decision(calls=tuple([(call, filled(args, with_item(fill, item))) for item in items]))

    def _hand_over(self, text: str, into: str | None) -> Decision:
        said = text or self._why_nothing()
        if into is None:
            return Decision(said)
        texts, others = _required(self._offered(into))
        if len(texts) != 1 or others:
            self._missing(into, f"`{into}` does not take just one required text; use `call` with `args`")
        return Decision(calls=((into, {texts[0]: said}),))

    def _why_nothing(self) -> str:
        """Return why there is nothing to take sentences from: what went wrong in this visit, where something did."""
        errors = [result.text for answer in self._answers if answer for result in answer.results if result.is_error]
        return "\n".join(dict.fromkeys(errors)) or "There was nothing to take sentences from."

    # --- placeholders

    def _fill(self, at: int, ran: _Ran, *, errors: bool = True) -> Fill:
        def fill(name: str) -> str:
            if name == "task":
                return self._situation.task
            named = _NAMED.fullmatch(name)
            if named is None:
                return self._missing(name, f"`{{{name}}}` is no placeholder that can be filled here")
            kind, inside = named.groups()
            match kind:
                case "region":
                    return self._situation.regions.get(inside.strip(), "")
                case "result":
                    return self._result(inside.strip(), at, ran, errors=errors)
                case _:
                    return self._extract(name, inside)

        return fill

    def _extract(self, name: str, inside: str) -> str:
        region, _, count = inside.partition(",")
        if not count.strip().isdecimal() or int(count) < 1:
            self._missing(name, f"`{{{name}}}` needs a region and how many sentences, 1 or more")
        return extract(self._situation.regions.get(region.strip(), ""), int(count))

    def _result(self, step: str, at: int, ran: _Ran, *, errors: bool) -> str:
        key = f"result({step})"
        if not step.isdecimal() or not 1 <= int(step) <= at:
            self._missing(key, f"`{key}` names no step in front of this one")
        pages = ran.get(int(step) - 1, [])  # none where it was passed over, since it had no items
        kept = [page for page in pages if page is not None]
        if len(kept) < len(pages):
            self._missing(key, f"the answer of step {step} has left the window")
        return "\n".join([page.text(errors=errors) for page in kept])

    def _named(self, source: str, fill: Fill) -> str:
        if not source.startswith(("region(", "result(")):
            self._missing(source, f"`for_each` is {source!r}; use `result(STEP)` or `region(NAME)`")
        return fill(source)

    # --- without a policy

    def default(self) -> Decision:
        """Call each tool that regions can fill and that was not called yet; then hand in or say an extract."""
        called = {call.name for answer in self._answers if answer is not None for call in answer.message.calls}
        calls = tuple(
            [
                (spec.name, arguments)
                for spec in self._request.tools.specs
                if spec.name not in called
                and spec.name != self._situation.output_tool
                and (arguments := self._from_regions(spec))
            ]
        )
        if calls:
            return Decision(calls=calls)
        output = self._output()
        if output is not None:
            return output
        said = extract(self._material(), DEFAULT_SENTENCES)
        return Decision(said) if said else self._missing("policy", "there is no text to take sentences from")

    def _from_regions(self, spec: ToolSpec) -> dict[str, str]:
        """Return the required arguments of *spec*, all filled; empty where one cannot be, or none is required."""
        texts, others = _required(spec)
        known = {**({"task": self._situation.task} if self._situation.task else {}), **self._situation.regions}
        return {} if others or not known.keys() >= set(texts) else {name: known[name] for name in texts}

    def _output(self) -> Decision | None:
        """Return the call that hands in the owed output; `None` where none is owed (any more)."""
        name = self._situation.output_tool
        if name is None or any(_succeeded(answer, name) for answer in self._answers if answer is not None):
            return None
        texts, others = _required(self._offered(name))
        if len(texts) != 1 or others:
            self._missing(name, f"`{name}` does not take just one required text; give the stage a policy that calls it")
        arguments = {texts[0]: extract(self._material(), DEFAULT_SENTENCES) or CLOSING}
        refused = self._refused(name, arguments)
        if len(refused) >= _MOST_TRIES:
            why = refused[-1].strip().partition("\n")[0]
            self._missing(name, f"`{name}` refuses what is handed in ({why}); give the stage a policy that calls it")
        return Decision(calls=((name, arguments),))

    def _refused(self, tool: str, arguments: Mapping[str, Any]) -> list[str]:
        """Return what *tool* said each time that it was called with these *arguments* and failed, oldest first."""
        said: list[str] = []
        for answer in filter(None, self._answers):
            failed = {result.call_id: result.text for result in answer.results if result.is_error}
            said += [
                failed[call.call_id]
                for call in answer.message.calls
                if call.name == tool and call.call_id in failed and _read(str(call.arguments)) == arguments
            ]
        return said

    def _material(self) -> str:
        """Return what to say something about: what tools gave in this visit, else regions, task or transcript."""
        kept = [answer for answer in self._answers if answer is not None]
        results = "\n\n".join([r.text for answer in kept for r in answer.results if not r.is_error])
        regions = "\n\n".join(self._situation.regions.values())
        return next(filter(str.strip, (results, regions, self._situation.task, _said(self._request))), "")

    # --- routing

    def route(self) -> str:
        """Return the stage to go to."""
        choices = self._situation.choices
        for step in self._situation.policy or ():
            if step.route is not None and step.route in choices:
                return step.route
        if not choices:
            self._missing("route", "a routing question offers no stage")
        newest = _newest(self._request) or self._situation.task
        heard = words_of(newest)
        return max(choices, key=lambda stage: len(heard & words_of(f"{stage} {choices[stage]}")))

    # --- helpers

    def _offered(self, tool: str) -> ToolSpec:
        spec = self._tools.get(tool)
        return self._missing(tool, f"the stage offers no tool {tool!r}") if spec is None else spec

    def _missing(self, key: str, why: str) -> NoReturn:
        stage = self._situation.stage
        raise OfflinePolicyMissing(
            f"the offline provider cannot go on in stage {stage!r}: {why}; "
            f"mend the stage's `offline.policy`, or use a provider with a model",
            stage=stage,
            key=key,
            model=self._request.model,
        )


def items_of(source: str) -> list[str]:
    """Return the items of *source*: its lines up to the first blank one, in order.

    A line that starts with a double quote is a JSON string, for names that hold a newline.
    """
    items: list[str] = []
    for line in source.split("\n"):
        if not line.strip():
            break
        items.append(_unquoted(line))
    return items


def _unquoted(line: str) -> str:
    read = _read(line) if line.startswith('"') else line
    return read if isinstance(read, str) else line


def _passed_over(step: PolicyStep, answer: Answered | None) -> bool:
    if step.route is not None:
        return True
    if step.for_each is None or answer is None:
        return False
    return not _calls_only(answer, step.call)


def _goes_on(step: PolicyStep, answer: Answered | None, left: Answered | None) -> bool:
    if answer is not None:
        return bool(_next_pages(answer))
    return left is not None and _calls_only(left, step.call)


def _calls_only(answer: Answered, tool: str | None) -> bool:
    return {call.name for call in answer.message.calls} == {tool}


def _next_pages(answer: Answered) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that go on where those of *answer* stopped, as their results say."""
    results = {result.call_id: result for result in answer.results if not result.is_error}
    pages: list[tuple[str, dict[str, Any]]] = []
    for call in answer.message.calls:
        goes_on = _CONTINUED.search(results[call.call_id].text) if call.call_id in results else None
        if goes_on is not None:
            name, value = goes_on.groups()
            pages.append((call.name, {**as_object(_read(str(call.arguments))), name: _read(value)}))
    return pages


def _read(source: str) -> object:
    """Return *source* decoded where it is JSON, else itself."""
    try:
        read: object = json.loads(source)
    except (ValueError, RecursionError):
        return source
    return read


def _required(spec: ToolSpec) -> tuple[list[str], list[str]]:
    """Return the names of the required arguments of *spec*: those that are text, and the others."""
    schema = as_object(msgspec.json.decode(spec.schema))
    properties = as_object(schema.get("properties"))
    required = [str(name) for name in as_list(schema.get("required"))]
    texts = [name for name in required if as_object(properties.get(name)).get("type", "string") == "string"]
    return texts, [name for name in required if name not in texts]


def _succeeded(answer: Answered, tool: str) -> bool:
    good = {result.call_id for result in answer.results if not result.is_error}
    return any(call.name == tool and call.call_id in good for call in answer.message.calls)


def _backwards(request: Request) -> Iterator[Message]:
    for segment in reversed(request.messages):
        yield from reversed(segment.messages)


def _answers(request: Request, count: int) -> list[Answered | None]:
    """Return the last *count* answers in the transcript, oldest first; `None` for each that has left the window."""
    found: list[Answered | None] = []
    results: dict[str, Message] = {}
    for message in _backwards(request):
        if len(found) == count:
            break
        if message.role == "tool":
            results.setdefault(message.call_id, message)
        elif message.role == "assistant":
            given = tuple([results[call.call_id] for call in message.calls if call.call_id in results])
            found.append(Answered(message, given))
            results = {}
    return [*[None] * (count - len(found)), *reversed(found)]


def _newest(request: Request) -> str:
    """Return the newest text of a model or a tool: what stands behind it is the question itself."""
    return next((m.text for m in _backwards(request) if m.role in ("assistant", "tool") and any(m.texts)), "")


def _said(request: Request) -> str:
    """Return all texts of the conversation, but for those of the runtime's own."""
    said = [message for segment in request.messages for message in segment.messages]
    return "\n\n".join([m.text for m in said if m.role != "user" or not m.text.startswith(OWN_WORD)])
