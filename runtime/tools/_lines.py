"""What a shell line does, in keys that can be granted: programs that it runs, variables that it sets, files it writes.

A key is a program (`grep`), a program and what it is told to do where one name covers too much (`git push`,
`python -m pytest`, `npm run test`), `env:NAME`, or `>PATH`. A line is covered only where all its keys are. One that
cannot be read, or whose words do not show what it runs, has no keys and is asked for each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from shoal.runtime.tools._words import Command, Unreadable, Word, read_commands

_PROGRAM = re.compile(r"[A-Za-z0-9_./+@%,-]+|\[|:")
_TOLD_WORD = re.compile(r"[A-Za-z0-9_./+@%,:=][A-Za-z0-9_./+@%,:=-]*")
_SETS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?[smhd]?")
_HARMLESS_SET = re.compile(r"[-+][eux]*o?|pipefail")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_NO_FILE = re.compile(r"/dev/(null|stdout|stderr|fd/[0-9]+)")
_CONNECTS = re.compile(r"/dev/(tcp|udp)/.*", re.DOTALL)


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


_RESERVED = _names("if then elif else fi for while until do done case esac select function in coproc { } [[ ]] !")
_NEVER = _names(
    # What runs its words as shell text, or as somebody or in a place that they do not show.
    "eval exec source . sh bash dash zsh ksh mksh fish csh tcsh busybox toybox sudo doas su runuser pkexec xargs",
    "parallel setsid chroot unshare nsenter script expect watch entr strace ltrace gdb",
    # What changes how the rest of a line is read, or what its names mean.
    "trap alias unalias builtin enable hash shopt export declare typeset local readonly unset read readarray mapfile",
    "getopts let bind complete compgen compopt history fc wait caller suspend logout",
)
_TOLD = _names(
    "git cargo npm pnpm yarn pip pip3 pipx uv poetry hatch pdm rye go docker podman kubectl helm gh glab brew apt",
    "apt-get dnf yum apk systemctl make gmake just task terraform tofu dotnet conda mamba bundle gem rustup nix",
    "npx bunx uvx deno bun node ruby perl php lua Rscript julia java mvn gradle tox nox",
)
"""Programs whose first word says what they do."""
_RUNNERS = _names("npm pnpm yarn bun deno uv poetry hatch pdm rye go cargo docker podman")
_TOLD_TWICE = frozenset(f"{program} run" for program in _RUNNERS) | {
    "docker compose",
    "go tool",
    "npm exec",
    "pnpm exec",
    "podman compose",
    "uv pip",
    "uv tool",
    "yarn exec",
}
"""Of these the next word counts as well."""
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_MOVES = frozenset({"cd", "chdir", "pushd", "popd"})


@final
class Step(msgspec.Struct, frozen=True):
    """One command of a line.

    Args:
        keys: What a grant of it is kept under; files that it writes are the line's.
        program: The program that it runs; empty where it runs none.
        words: What stands behind the program.
        reads: Files that redirections read.
    """

    keys: tuple[str, ...]
    program: str
    words: tuple[Word, ...]
    reads: tuple[str, ...]


@final
class Line(msgspec.Struct, frozen=True):
    """A line that could be read.

    Args:
        steps: Its commands, in order.
        writes: Files that it writes, in order; devices that are no files are left out.
    """

    steps: tuple[Step, ...]
    writes: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """What a grant of it is kept under: each key once, in order."""
        return tuple(dict.fromkeys((*(key for step in self.steps for key in step.keys), *self.write_keys)))

    @property
    def write_keys(self) -> tuple[str, ...]:
        """What a grant of the files that it writes is kept under, in order."""
        return tuple(f">{path}" for path in self.writes)

    @property
    def moves(self) -> tuple[Step, ...]:
        """The commands that change the folder for those behind them."""
        return tuple(step for step in self.steps if step.program in _MOVES)


def keys_of(command: str) -> tuple[str, ...]:
    """Return what a grant of the shell line *command* is kept under; nothing for one that cannot be granted."""
    try:
        return read_line(command).keys
    except Unreadable:
        return ()


def command_problem(entry: str) -> str | None:
    """Return what is wrong with *entry* as a safe command, a sentence that says what to write; `None` if nothing is."""
    if entry.startswith(("env:", ">")) and entry.removeprefix("env:").removeprefix(">").strip():
        return None
    try:
        keys = read_line(entry).keys
    except Unreadable as exc:
        return f"no line can match {entry!r}: {exc}; name a program, and what it is told to do"
    if keys == (entry,):
        return None
    kept = " and ".join(f"`{key}`" for key in keys) or "nothing"
    return f"no line can match {entry!r}: such a line is kept under {kept}; write that"


def read_line(command: str) -> Line:
    """Return what the shell line *command* does.

    Raises:
        Unreadable: It cannot be said; the message says why.
    """
    commands = read_commands(command)
    writes: list[str] = []
    steps = tuple(_step(each, writes) for each in commands)
    line = Line(steps, tuple(dict.fromkeys(writes)))
    if line.moves and any("/" in step.program.lstrip("/") and step.program[0] != "/" for step in steps if step.program):
        raise Unreadable("it names a program by a path, in a folder that it changes")
    return line


def _step(command: Command, writes: list[str]) -> Step:
    writes.extend(_files(command.writes))
    words = list(command.words)
    keys: list[str] = []
    while words and (name := words[0].assigns) is not None:
        keys.append(f"env:{name}")
        words.pop(0)
    if words and words[0].is_bare and words[0].text == "!":
        words.pop(0)
    reads = tuple(_files(command.reads))
    if not words:
        return Step(tuple(keys), "", (), reads)
    more, program, rest = _run(words)
    if program == "git":
        writes.extend(_files(_outputs(rest)))
    return Step((*keys, *more), program, rest, reads)


def _files(targets: Iterable[Word]) -> list[str]:
    for target in targets:
        if target.shape != "exact":
            raise Unreadable("a redirection in it has no plain target")
        if _CONNECTS.fullmatch(target.text):
            raise Unreadable("a redirection in it connects to the network")
    return [target.text for target in targets if not _NO_FILE.fullmatch(target.text)]


# --- programs


def _run(words: Sequence[Word]) -> tuple[tuple[str, ...], str, tuple[Word, ...]]:
    """Return the keys of a command without its assignments, the program that it runs in the end, and its words."""
    program, rest = words[0].text, tuple(words[1:])
    if words[0].shape != "exact":
        raise Unreadable("it does not say which program it runs")
    if program in _RESERVED:
        raise Unreadable(f"it holds `{program}`")
    if not _PROGRAM.fullmatch(program):
        raise Unreadable(f"{program!r} is no plain name of a program")
    if program in _NEVER:
        raise Unreadable(f"`{program}` may do anything")
    unwrapped = _unwrapped(program, rest)
    if unwrapped is not None:
        keys, inner = unwrapped
        more, run, behind = _run(inner)
        return (*keys, *more), run, behind
    return _keys(program, rest), program, rest


def _unwrapped(program: str, rest: tuple[Word, ...]) -> tuple[tuple[str, ...], tuple[Word, ...]] | None:
    """Return the keys of what *program* does to the command in its words, and that command; `None` if it has none."""
    keys: list[str] = []
    match program:
        case "nohup" | "nice" | "time":
            pass
        case "command" if not _is(rest, "-v"):
            pass
        case "timeout" if rest and rest[0].shape == "exact" and _DURATION.fullmatch(rest[0].text):
            rest = rest[1:]
        case "env":
            while rest and (sets := _SETS.match(rest[0].text)) is not None:
                keys.append(f"env:{sets[1]}")
                rest = rest[1:]
        case _:
            return None
    if not rest:
        return None
    if rest[0].text.startswith("-"):
        raise Unreadable(f"`{program}` has options that may change what it runs")
    return tuple(keys), rest


def _is(words: Sequence[Word], text: str) -> bool:
    return bool(words) and words[0].shape == "exact" and words[0].text == text


def _keys(program: str, words: Sequence[Word]) -> tuple[str, ...]:
    match program:
        case "set":
            if all(word.shape == "exact" and _HARMLESS_SET.fullmatch(word.text) for word in words) and words:
                return ()
            raise Unreadable("`set` may change how the rest is read")
        case "timeout":
            raise Unreadable("`timeout` has options that may change what it runs")
        case "command":
            return ("command -v",) if words else ("command",)
        case "env":
            return ("env",)
        case "test" | "[" if any("[" in word.text for word in words):
            raise Unreadable("a subscript in it may run something")
        case "printf" if words and (words[0].shape != "exact" or words[0].text.startswith("-")):
            raise Unreadable("`printf` may set a variable")
        case "find":
            return _find(words)
        case _ if program in _TOLD:
            return (_told(program, words),)
        case _ if _PYTHON.fullmatch(program):
            return (_told(f"{program} -m", words[1:]) if _is(words, "-m") else _told(program, words),)
        case _:
            return (program,)


def _told(program: str, words: Sequence[Word]) -> str:
    """Return *program* with what its first word tells it to do."""
    if not words:
        return program
    first = words[0]
    if first.shape != "exact" or not _TOLD_WORD.fullmatch(first.text):
        raise Unreadable(f"it does not say at once what `{program}` is to do")
    told = f"{program} {first.text}"
    return _told(told, words[1:]) if told in _TOLD_TWICE else told


def _find(words: Sequence[Word]) -> tuple[str, ...]:
    if any(word.shape in ("open", "pattern") for word in words):
        raise Unreadable("`find` may be told to run something by a name that it matches")
    texts = [word.text for word in words]
    if not _FIND_RUNS.isdisjoint(texts):
        raise Unreadable("`find` runs something in it")
    return ("find", *(f"find {text}" for text in texts if text in _FIND_WRITES))


def _outputs(words: Sequence[Word]) -> list[Word]:
    """Return the files that git is told to write; it takes the beginning of an option for the whole."""
    found: list[Word] = []
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if len(name) > 3 and "--output".startswith(name):
            behind = Word(value, word.shape) if equals else next(iter(words[index + 1 :]), Word("", "open"))
            found.append(behind)
    return found
