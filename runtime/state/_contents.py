"""What events say, as the messages that entries are made of."""

from __future__ import annotations

from shoal.errors import DefinitionMissing
from shoal.providers import EMPTY, Message, ProviderState, Text
from shoal.runtime._failures import answer_of
from shoal.runtime.context import WHOLE
from shoal.runtime.events import (
    ChildEnded,
    HookRan,
    InferenceCompleted,
    ItemRefused,
    MessageReceived,
    Nudged,
    QuestionAnswered,
    ToolCallCompleted,
)
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._visit import argument, call_id, calls_of, heading_of


def content_of(state: RunRecord, source: int, index: int) -> Message:
    """Return what event *source* holds at *index*, as a message.

    Raises:
        DefinitionMissing: No such event is at hand: the journal refers to what it does not hold.
    """
    payload = state.recent.get(source)
    match payload:
        case InferenceCompleted() if index == WHOLE:
            return _reply(state, source, payload)
        case InferenceCompleted():
            return Message("user", (argument(payload.calls[index].arguments, "content"),))
        case ToolCallCompleted():
            call = call_id(payload.source, payload.index)
            name = _call_name(state, payload)
            return Message("tool", (payload.text,), call_id=call, tool_name=name, is_error=payload.is_error)
        case HookRan():
            return Message("user", (payload.text or EMPTY,))
        case MessageReceived() | Nudged():
            return Message("user", (payload.text,))
        case QuestionAnswered():
            return Message("user", () if payload.text is None else (payload.text,))
        case ItemRefused(_, _, item, why):
            return Message("user", (Text.of(f"{heading_of(item, 'refused')}\n{why}"),))
        case ChildEnded():
            heading = state.children[payload.child].heading
            return Message("user", (Text.of(f"{heading}\n{answer_of(payload)}"),))
        case _:
            raise DefinitionMissing(f"run {state.run_id} refers to event {source}, which holds no text")


def _reply(state: RunRecord, source: int, reply: InferenceCompleted) -> Message:
    """Return the reply *source* as a turn of the model that was asked."""
    thinking = None
    if reply.state is not None:
        # The model that was asked, as in the live reply: a vendor answers under a dated name of it.
        thinking = ProviderState(state.serving[0], state.serving[1], reply.state)
    return Message("assistant", (reply.text,) if reply.text else (), calls_of(source, reply), state=thinking)


def _call_name(state: RunRecord, completed: ToolCallCompleted) -> str:
    made = state.recent.get(completed.source)
    return made.calls[completed.index].name if isinstance(made, InferenceCompleted) else ""
