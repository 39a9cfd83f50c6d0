"""Every error that Shoal raises on purpose, in one tree.

    ShoalError
    ├─ BlueprintError            you can mend it before anything runs
    │  ├─ BlueprintInvalid         the file or object has findings
    │  ├─ ConfigInvalid            a setting, an argument or an environment variable
    │  ├─ SpawnRefused             the run would start wrong: seeds, task, budget, depth
    │  ├─ ToolInvalid              a function that cannot be a tool
    │  └─ NotBuiltYet              a key that is understood and not acted on in this version
    ├─ RunError                  the run, or the journal that it lives in
    │  ├─ RunIsPaused              it waits for somebody; resumable
    │  ├─ RunFailed                it ended `error`
    │  ├─ RunCancelled             it ended `cancelled`
    │  ├─ RunNotFound              no such run in this journal
    │  ├─ RunEnded                 the run is over: it takes no message
    │  ├─ AnswerRefused            the run asks no such question, or takes no such answer
    │  ├─ ConnectorFailed          an MCP server cannot be reached, or is not there
    │  ├─ OutputInvalid            its answer is not of the type that was asked for
    │  ├─ ReplayMismatch           a function asks for something else than it did before
    │  ├─ RunInterrupted           no process hosts it, and it is not over
    │  ├─ RunOwned                 another process hosts it
    │  ├─ JournalFailed            the journal cannot write (full disk, permissions)
    │  ├─ JournalNewer             the file was written by a newer version
    │  ├─ JournalDamaged           a row is torn or corrupted
    │  ├─ DefinitionMissing        what the run is made of cannot be had
    │  ├─ PartMissing              the bytes of a stored part cannot be had
    │  └─ PartRefused              bytes that cannot be kept as a part: too many of them
    ├─ ProviderError             the vendor
    │  ├─ ProviderBusy             asked to wait `retry_after_s`
    │  ├─ ProviderUnavailable      no complete reply arrived
    │  ├─ ProviderRefused          it would be refused again unchanged
    │  ├─ ProviderSetup            credits, key, permission: a person must act
    │  ├─ ContextOverflow          prompt and reply do not fit the window
    │  │  └─ HardCapExceeded       a request has more characters than a stage may send
    │  ├─ PartialReply             the stream was cut and the retry budget is spent
    │  └─ OfflinePolicyMissing     the embedded provider cannot finish this blueprint
    ├─ MailboxError              the other actor
    │  ├─ MailboxFull              `send_nowait` found no room
    │  ├─ MailboxClosed            the actor ended
    │  ├─ AskTimeout               no answer within the deadline
    │  ├─ AskedSelf                an actor asked itself
    │  ├─ UnhandledMessage         the actor takes no message of this type
    │  └─ NameTaken                the registry has an actor of this name
    └─ SupervisorError           the tree
       ├─ ChildSpecInvalid         refused before anything starts
       ├─ StartFailed              a child did not come up
       ├─ RestartsExhausted        more restarts than its budget allows
       ├─ ChildNotFound            no child of that id
       ├─ AlreadyStarted           a child of that id runs
       ├─ AlreadyPresent           a child of that id exists and does not run
       ├─ ChildRunning             the call needs a child that does not run
       ├─ ChildRestarting          the child is between two tries
       ├─ TooManyChildren          `max_children` is reached
       └─ SupervisorStopped        the supervisor does not run

Families end in `Error`; leaves are facts. `retryable` says whether the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal


class ShoalError(Exception):
    """Anything that Shoal raises on purpose. `retryable` is true where the same call may succeed later."""

    retryable: bool = False


# --- before running


class BlueprintError(ShoalError):
    """You can mend it before anything runs."""


class BlueprintInvalid(BlueprintError):
    """A blueprint has problems; all of them are in *findings*.

    Args:
        message: What happened and what to do.
        findings: Each problem with file, line, column and key; in the order of the file.
    """

    def __init__(self, message: str, *, findings: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class ConfigInvalid(BlueprintError):
    """A setting, an argument or an environment variable is wrong."""


class SpawnRefused(BlueprintError):
    """The run would start wrong, so it does not start: seeds, task, budget, depth."""


class ToolInvalid(BlueprintError):
    """A function that cannot be offered to a model as a tool."""


class NotBuiltYet(BlueprintError):
    """A blueprint uses keys that this version reads and does not act on.

    Args:
        message: What happened and what to do.
        keys: The key paths, in the order of the file.
    """

    def __init__(self, message: str, *, keys: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


# --- runs


class RunError(ShoalError):
    """A run, or the journal that it lives in."""

    def __init__(self, message: str, *, run_id: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id


class RunIsPaused(RunError):
    """The run waits for somebody and goes on after `resume`.

    Args:
        message: What happened and what to do.
        run_id: The run.
        reason: Why it paused, one word or a short phrase.
        remedy: What lets it go on.
        numbers: What was measured, by name; empty where the pause has no numbers.
    """

    def __init__(
        self,
        message: str,
        *,
        run_id: str | None = None,
        reason: str = "",
        remedy: str = "",
        numbers: Mapping[str, int | float | str] | None = None,
    ) -> None:
        super().__init__(message, run_id=run_id)
        self.reason = reason
        self.remedy = remedy
        self.numbers = dict(numbers or {})


class RunFailed(RunError):
    """The run ended with status `error`."""


class RunCancelled(RunError):
    """The run ended with status `cancelled`."""


class RunNotFound(RunError):
    """The journal holds no run of that id."""


class RunEnded(RunError):
    """The run is over: it takes no message and cannot be resumed."""


class AnswerRefused(RunError):
    """The run asks no such question, or the question takes no such answer."""


class ConnectorFailed(RunError):
    """An MCP server cannot be reached, or did not answer."""


class OutputInvalid(RunError):
    """The run is complete, and its answer is not of the type that its spawn asked for."""


class ReplayMismatch(RunError):
    """An agentic function that is run again asks for something else than the journal holds under that number.

    Args:
        message: What happened and what to do.
        run_id: The run.
        frame: Seq of the frame in which it happened.
        number: Number of the call in it.
        recorded: What the journal holds: kind of call and digest.
        asked: What the function asks for now.
    """

    def __init__(
        self,
        message: str,
        *,
        run_id: str | None = None,
        frame: int = 0,
        number: int = 0,
        recorded: tuple[str, str] = ("", ""),
        asked: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(message, run_id=run_id)
        self.frame = frame
        self.number = number
        self.recorded = recorded
        self.asked = asked


class RunInterrupted(RunError):
    """The run is not over, and no process hosts it: it goes on once somebody takes it up."""


class RunOwned(RunError):
    """Another process hosts the run; two never own one."""


class JournalFailed(RunError):
    """The journal cannot write: full disk, permissions, a broken file. Nothing was half done."""


class JournalNewer(RunError):
    """The journal was written by a newer version than this one reads."""


class JournalDamaged(RunError):
    """A row of the journal is torn or corrupted.

    Args:
        message: What happened and what to do.
        run_id: The run.
        seq: The first event that cannot be read; the ones before it are good.
    """

    def __init__(self, message: str, *, run_id: str | None = None, seq: int | None = None) -> None:
        super().__init__(message, run_id=run_id)
        self.seq = seq


class DefinitionMissing(RunError):
    """What the run is made of cannot be had: a digest without bytes, a function that is gone."""


class PartMissing(RunError):
    """The bytes of a stored part cannot be had, or no part goes by that name."""


class PartRefused(RunError):
    """Bytes that are not kept as a stored part, such as more than the limit `part_bytes`."""


# --- vendors


class ProviderError(ShoalError):
    """The vendor, or the way to it.

    Args:
        message: What happened and what to do.
        provider: Name of the provider.
        model: The model that was asked.
        request_id: The vendor's id of the request; `None` where it gave none.
        status: HTTP status; `None` where no answer came.
        attempt: Which attempt of the request this was, 1 or more.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        request_id: str | None = None,
        status: int | None = None,
        attempt: int = 1,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.request_id = request_id
        self.status = status
        self.attempt = attempt


class ProviderBusy(ProviderError):
    """The vendor asked us to wait `retry_after_s` seconds; `None` where it did not say how long."""

    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        self.retry_after_s = retry_after_s


class ProviderUnavailable(ProviderError):
    """No complete reply arrived: network, server error, a stream without its end."""

    retryable = True


class ProviderRefused(ProviderError):
    """The request would be refused again unchanged."""


class ProviderSetup(ProviderError):
    """Credits, key or permission: a person must act, then the run can be resumed.

    Args:
        message: What happened and what to do.
        remedy: What the person has to do, one sentence.
        **context: See `ProviderError`.
    """

    def __init__(self, message: str, *, remedy: str = "", **context: Any) -> None:
        super().__init__(message, **context)
        self.remedy = remedy


class ContextOverflow(ProviderError):
    """Prompt and reply do not fit the model's window.

    Args:
        message: What happened and what to do.
        prompt_tokens: What the prompt costs; `None` where nobody said.
        reply_tokens: The reply budget that was asked for; `None` where nobody said.
        window_tokens: The model's window; `None` where nobody said.
        **context: See `ProviderError`.
    """

    def __init__(
        self,
        message: str,
        *,
        prompt_tokens: int | None = None,
        reply_tokens: int | None = None,
        window_tokens: int | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, **context)
        self.prompt_tokens = prompt_tokens
        self.reply_tokens = reply_tokens
        self.window_tokens = window_tokens


class HardCapExceeded(ContextOverflow):
    """A request has more characters than its stage's `hard_cap_chars`, whatever was masked and compacted."""


class PartialReply(ProviderError):
    """The stream was cut before its end and the retry budget is spent; its tool calls never ran.

    Args:
        message: What happened and what to do.
        text: What had arrived.
        cost_usd: What the attempt may have cost, by an estimate; `None` where that is unknown, and where the text is an
            earlier attempt's, of which the cost was told when it was repeated.
        **context: See `ProviderError`.
    """

    def __init__(self, message: str, *, text: str = "", cost_usd: Decimal | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        self.text = text
        self.cost_usd = cost_usd


class OfflinePolicyMissing(ProviderError):
    """The embedded provider cannot finish a stage of this blueprint.

    Args:
        message: What happened and what to do.
        stage: The stage.
        key: What its policy lacks.
        **context: See `ProviderError`.
    """

    def __init__(self, message: str, *, stage: str = "", key: str = "", **context: Any) -> None:
        super().__init__(message, **context)
        self.stage = stage
        self.key = key


# --- actors


class MailboxError(ShoalError):
    """The other actor.

    Args:
        message: What happened and what to do.
        path: Where the actor stands in its tree, such as `/swarm/agents/review-3`.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class MailboxFull(MailboxError):
    """`send_nowait` found no room; `send` would have waited."""

    retryable = True


class MailboxClosed(MailboxError):
    """The actor ended and takes no mail."""


class AskTimeout(MailboxError):
    """No answer came within `timeout_s` seconds; the message may still be handled."""

    retryable = True

    def __init__(self, message: str, *, path: str = "", timeout_s: float = 0.0) -> None:
        super().__init__(message, path=path)
        self.timeout_s = timeout_s


class AskedSelf(MailboxError):
    """An actor asked itself, which could only ever wait for its own end."""


class UnhandledMessage(MailboxError):
    """The actor takes no message of this type."""


class NameTaken(MailboxError):
    """The registry holds a live actor of this name."""


# --- supervisors


class SupervisorError(ShoalError):
    """The tree.

    Args:
        message: What happened and what to do.
        supervisor: Name of the supervisor.
        child: Id of the child; `None` where no single child is meant.
    """

    def __init__(self, message: str, *, supervisor: str = "", child: str | None = None) -> None:
        super().__init__(message)
        self.supervisor = supervisor
        self.child = child


class ChildSpecInvalid(SupervisorError):
    """A child spec that is refused before anything starts."""


class StartFailed(SupervisorError):
    """A child did not come up; the cause is in `__cause__`."""


class RestartsExhausted(SupervisorError):
    """A child ended more often than its budget of restarts allows.

    Args:
        message: What happened and what to do.
        supervisor: The one that gave up.
        child: The child whose end was one too many.
        history: Every start, exit, restart and give-up, oldest first.
    """

    def __init__(
        self, message: str, *, supervisor: str = "", child: str | None = None, history: Sequence[Any] = ()
    ) -> None:
        super().__init__(message, supervisor=supervisor, child=child)
        self.history = tuple(history)


class ChildNotFound(SupervisorError):
    """The supervisor has no child of that id."""


class AlreadyStarted(SupervisorError):
    """A child of that id runs."""


class AlreadyPresent(SupervisorError):
    """A child of that id exists and does not run: `restart_child` or `delete_child` it."""


class ChildRunning(SupervisorError):
    """The call needs a child that does not run."""


class ChildRestarting(SupervisorError):
    """The child is between two tries of its restart."""


class TooManyChildren(SupervisorError):
    """`max_children` is reached."""


class SupervisorStopped(SupervisorError):
    """The supervisor was not started, ends, or has ended."""
