"""OTP's rules of supervision as a plain model: no tasks, no time of its own, and nothing of what it is compared with.

A definition says what a tree is; a `Model` is the tree that runs. Whatever happens is told to it as it happens; it
answers with what the tree has to look like then, with the starts and ends of its children in their order, and with
what has to be reported as an error.

Source: the reference page and the module of OTP's `supervisor` (OTP 27).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

Restart = Literal["permanent", "transient", "temporary"]
End = Literal["normal", "shutdown", "crash"]

Step = str | frozenset[str]
"""`+a` (a came up), `-a` (it ended), `!a` (its start failed), `~a` (it had nothing to do); a set has no order."""


@dataclass(frozen=True)
class Flags:
    """What a supervisor is told; `simple_one_for_one` begins with no child."""

    strategy: str = "one_for_one"
    intensity: int = 1
    period: float = 5.0
    auto_shutdown: str = "never"
    children: tuple[Spec, ...] = ()

    @property
    def simple(self) -> bool:
        return self.strategy == "simple_one_for_one"


@dataclass(frozen=True)
class Spec:
    """One child; a supervisor where it has flags."""

    name: str
    restart: Restart = "permanent"
    significant: bool = False
    flags: Flags | None = None


@dataclass
class Child:
    """A spec that is kept, with or without a process. *dead* is how it ended while nobody has read that yet."""

    spec: Spec
    up: bool = False
    restarting: bool = False
    below: Sup | None = None
    dead: End | None = None


@dataclass
class Sup:
    """One life of a supervisor: its children in start order, and the times of its restarts."""

    flags: Flags
    above: tuple[Sup, Child] | None
    children: dict[str, Child] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    gone: str = ""
    """Why it has ended: `gave up`, `auto`, or `stopped`."""


class NotStarted(Exception):
    """A child did not come up."""


class Model:
    """A tree that runs.

    Args:
        root: What the topmost supervisor is told.
        broken: How many of the next starts of a child fail, by name.
        idle: How many of the next starts of a child find nothing to do, by name.
    """

    def __init__(self, root: Flags, broken: Counter[str] | None = None, idle: Counter[str] | None = None) -> None:
        self.now = 0.0
        self.broken = Counter(broken or {})
        self.idle = Counter(idle or {})
        self.steps: list[Step] = []
        self.errors: Counter[tuple[str, str]] = Counter()
        """What is reported: kind (`ended`, `gave up`, `shutdown`) and child."""
        self._mail: deque[tuple[Literal["end", "retry"], Sup, Child]] = deque()
        """What supervisors have yet to read: ends, and the retries that they send themselves."""
        self.root = self._begin(root, None)

    # --- looking

    def picture(self) -> dict[str, object]:
        """Return what each supervisor that runs shows of its children: name and whether it runs, in start order."""
        shown: dict[str, object] = {}
        self._show("root", self.root, shown)
        return shown

    def _show(self, name: str, sup: Sup, shown: dict[str, object]) -> None:
        if sup.gone:
            return
        listed = [(child.spec.name, child.up) for child in sup.children.values()]
        shown[name] = frozenset(listed) if sup.flags.simple else tuple(listed)
        for child in sup.children.values():
            if child.below is not None:
                self._show(child.spec.name, child.below, shown)

    # --- starting and stopping

    def _begin(self, flags: Flags, above: tuple[Sup, Child] | None) -> Sup:
        """Start a supervisor: its children in order, each up before the next; the first failure stops those before."""
        sup = Sup(flags, above)
        sup.children = {spec.name: Child(spec) for spec in flags.children}
        for child in tuple(sup.children.values()):
            try:
                self._start(sup, child)
            except NotStarted:
                self._stop_children(sup)
                raise
        return sup

    def _start(self, sup: Sup, child: Child) -> None:
        name = child.spec.name
        if child.spec.flags is not None:
            child.below = self._begin(child.spec.flags, (sup, child))
        elif self.broken[name]:
            self.broken[name] -= 1
            self.steps.append(f"!{name}")
            raise NotStarted(name)
        elif self.idle[name]:
            self.idle[name] -= 1
            self.steps.append(f"~{name}")
            if child.spec.restart == "temporary" or sup.flags.simple:
                del sup.children[name]
            return
        else:
            self.steps.append(f"+{name}")
        child.up = True

    def _stop_children(self, sup: Sup) -> None:
        sup.gone = sup.gone or "stopped"
        before, self.steps = self.steps, []
        for child in reversed(sup.children.values()):
            self._stop(child)
        ended, self.steps = self.steps, before
        self.steps += [frozenset(map(str, ended))] if sup.flags.simple else ended

    def _stop(self, child: Child) -> None:
        if child.dead is not None:
            self._note_shutdown(child)
        elif child.below is not None:
            self._stop_children(child.below)
        elif child.up:
            self.steps.append(f"-{child.spec.name}")
        child.up, child.restarting, child.below, child.dead = False, False, None, None

    def _note_shutdown(self, child: Child) -> None:
        """Report a child that died by itself just when it was stopped, where it should not have ended so."""
        fine = {"shutdown"} if child.spec.restart == "permanent" else {"shutdown", "normal"}
        if child.dead not in fine:
            self.errors["shutdown", child.spec.name] += 1

    def stop(self) -> None:
        """Stop the tree."""
        if not self.root.gone:
            self._stop_children(self.root)

    # --- what happens to children

    def ends(self, sup: Sup, names: list[str], how: End) -> None:
        """Have workers of one supervisor end by themselves, in this order, before it reads of the first."""
        for name in names:
            sup.children[name].dead = how
            self.steps.append(f"-{name}")
            self._mail.append(("end", sup, sup.children[name]))
        self._read()

    def _read(self) -> None:
        """Read the mail; what was stopped or started again meanwhile has nothing left to say."""
        while self._mail:
            letter, sup, child = self._mail.popleft()
            if sup.gone:
                continue
            if letter == "end" and child.dead is not None:
                how, child.dead, child.up = child.dead, None, False
                self._ended(sup, child, how)
            elif letter == "retry" and child.restarting:
                self._restart(sup, child)

    def crashes(self, sup: Sup) -> None:
        """Have a supervisor that is no root end abnormally: its children are stopped first."""
        assert sup.above is not None
        self._stop_children(sup)
        self._sup_ended(sup, "crash")
        self._read()

    def _sup_ended(self, sup: Sup, how: End) -> None:
        if sup.above is None:
            return
        parent, child = sup.above
        child.up, child.below = False, None
        self._ended(parent, child, how)

    def _ended(self, sup: Sup, child: Child, how: End) -> None:
        restart = child.spec.restart
        clean = how in ("normal", "shutdown")
        if restart == "permanent" or not clean:
            self.errors["ended", child.spec.name] += 1
        if restart == "permanent" or (restart == "transient" and not clean):
            self._restart(sup, child)
            return
        if restart == "temporary" or sup.flags.simple:
            del sup.children[child.spec.name]
        if child.spec.significant and self._shuts_down(sup):
            sup.gone = "auto"
            self._stop_children(sup)
            self._sup_ended(sup, "shutdown")

    def _shuts_down(self, sup: Sup) -> bool:
        if sup.flags.auto_shutdown == "any_significant":
            return True
        left = any(child.spec.significant and (child.up or child.restarting) for child in sup.children.values())
        return sup.flags.auto_shutdown == "all_significant" and not left

    # --- restarts

    def _restart(self, sup: Sup, child: Child) -> None:
        """Count one entry, whatever the group is, and start the group, or give up; what fails is tried again later."""
        sup.times = [at for at in sup.times if at >= self.now - sup.flags.period] + [self.now]
        if len(sup.times) > sup.flags.intensity:
            self.errors["gave up", child.spec.name] += 1
            sup.gone = "gave up"
            self._stop_children(sup)
            self._sup_ended(sup, "shutdown")
            return
        failed = self._try(sup, child)
        if failed is not None:
            failed.restarting = True
            self._mail.append(("retry", sup, failed))

    def _try(self, sup: Sup, child: Child) -> Child | None:
        """Stop and start the group of *child*; return the one that did not come up, `None` where all did."""
        order = list(sup.children.values())
        if sup.flags.strategy in ("one_for_one", "simple_one_for_one"):
            group = [child]
        else:
            group = order if sup.flags.strategy == "one_for_all" else order[order.index(child) :]
        for member in reversed(group):
            runs = member.up
            self._stop(member)
            if runs and member.spec.restart == "temporary":
                del sup.children[member.spec.name]
        for member in group:
            if sup.children.get(member.spec.name) is member:
                try:
                    self._start(sup, member)
                except NotStarted:
                    return member
        return None

    # --- what is asked of a supervisor

    def start_child(self, sup: Sup, spec: Spec) -> str:
        """Add a child at the end of the start order."""
        there = sup.children.get(spec.name)
        if there is not None:
            return "already started" if there.up else "already present"
        child = sup.children[spec.name] = Child(spec)
        try:
            self._start(sup, child)
        except NotStarted:
            del sup.children[spec.name]
            return "not started"
        return "done"

    def terminate_child(self, sup: Sup, name: str) -> str:
        """Stop a child; its spec stays, but for a temporary one. Its end counts for nothing."""
        child = sup.children.get(name)
        if child is None:
            return "not found"
        self._stop(child)
        if child.spec.restart == "temporary" or sup.flags.simple:
            del sup.children[name]
        return "done"

    def restart_child(self, sup: Sup, name: str) -> str:
        """Start a child that has no process; it does not count."""
        if sup.flags.simple:
            return "refused"
        child = sup.children.get(name)
        if child is None or child.up:
            return "not found" if child is None else "running"
        try:
            self._start(sup, child)
        except NotStarted:
            return "not started"
        return "done"

    def delete_child(self, sup: Sup, name: str) -> str:
        """Forget a child that has no process."""
        if sup.flags.simple:
            return "refused"
        child = sup.children.get(name)
        if child is None or child.up:
            return "not found" if child is None else "running"
        del sup.children[name]
        return "done"
