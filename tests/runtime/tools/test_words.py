"""Shell lines are read as every shell reads them, or not at all: no command and no file is ever overlooked."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shoal.runtime.tools._lines import read_line
from shoal.runtime.tools._words import Unreadable, Word, read_commands


def words(line: str) -> list[list[str]]:
    """Return the words of each command of *line*."""
    return [[word.text for word in command.words] for command in read_commands(line)]


def refusal(line: str) -> str:
    with pytest.raises(Unreadable) as caught:
        read_commands(line)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("", []),
        ("  \n\n", []),
        ("ls", [["ls"]]),
        ("ls -l  a\tb", [["ls", "-l", "a", "b"]]),
        ("a; b & c && d || e | f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a &&\n\n b;", [["a"], ["b"]]),
        ("a &", [["a"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("# a", []),
        ("a#b c", [["a#b", "c"]]),
        ("a '#' \\#", [["a", "#", "#"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("\\\na", [["a"]]),
        ("a 'b c'd\"e f\" g\\ h", [["a", "b cde f", "g h"]]),
        ("a '' \"\"", [["a", "", ""]]),
        ('a "$" "\\$x" "\\a"', [["a", "$", "$x", "\\a"]]),
        ("a $ b$", [["a", "$", "b$"]]),
        ("a $B ${C}d $? $1", [["a", "$B", "$Cd", "$?", "$1"]]),
        ("a 2", [["a", "2"]]),
        ("a '2'>b", [["a", "2"]]),
        ("é ü", [["é", "ü"]]),
    ],
)
def test_a_plain_line_is_read(line: str, read: list[list[str]]):
    assert words(line) == read


@pytest.mark.parametrize(
    ("line", "reads", "writes"),
    [
        ("a > b", [], ["b"]),
        ("a>b c", [], ["b"]),
        ("a 2>b", [], ["b"]),
        ("a >>b >|c <>d", [], ["b", "c", "d"]),
        ("a &>b", [], ["b"]),
        ("a &>> b", [], ["b"]),
        ("a >& b", [], ["b"]),
        ("a < b", ["b"], []),
        ("a 2>&1 >&2 <&0 >&- <&-", [], []),
        ("> b", [], ["b"]),
        ("a > 'b c'", [], ["b c"]),
    ],
)
def test_redirections_are_read(line: str, reads: list[str], writes: list[str]):
    (command,) = read_commands(line)
    assert ([word.text for word in command.reads], [word.text for word in command.writes]) == (reads, writes)


def test_what_a_shell_makes_of_a_word_is_known():
    shapes = {
        "exact": ["a", "'*'", '"*"', "\\*", "'$A'", "a=b", "[", "]", "''"],
        "pattern": ["*", "a*b?", "*.py"],
        "text": ['"$A"', '"a $A"', "$?", "$#", '"$1"', '"$*"'],
        "open": ["$A", "a$A", "~", "~a", "a=~", "{a,b}", "[ab]", "*'*'", '*"$A"', "$@", '"$@"', "$1"],
    }
    found = {word: read_commands(f"x {word}")[0].words[1].shape for each in shapes.values() for word in each}
    assert found == {word: shape for shape, each in shapes.items() for word in each}


@pytest.mark.parametrize(
    ("word", "sets"),
    [("A=b", "A"), ("A+=b", "A"), ("A='b'", "A"), ("_a1=", "_a1"), ("'A'=b", None), ("A\\=b", None), ("1=b", None)],
)
def test_an_assignment_is_one_only_where_its_name_is_bare(word: str, sets: str | None):
    assert read_commands(word)[0].words[0].assigns == sets


def test_a_word_that_is_quoted_is_not_bare():
    assert [word.is_bare for word in read_commands("if 'if' i'f' \\if")[0].words] == [True, False, False, False]
    assert Word("a", bare=1).is_bare


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a `b`", "it holds a command substitution"),
        ('a "`b`"', "it holds a command substitution"),
        ("a $(b)", "it holds `$(`"),
        ('a "$(b)"', "it holds `$(`"),
        ("a $((1))", "it holds `$(`"),
        ("a $[1]", "it holds `$[`"),
        ("a $'b'", "it holds `$'`"),
        ('a $"b"', 'it holds `$"`'),
        ("a ${b:-c}", "it holds an expansion that does more than name a variable"),
        ("a ${!b}", "it holds an expansion that does more than name a variable"),
        ("a ${", "it holds an expansion that does more than name a variable"),
        ("(a)", "it holds `(`"),
        ("a)", "it holds `)`"),
        ("a() { b; }", "it holds `(`"),
        ("a $$(b)", "it holds `(`"),
        ("a <<E", "it holds a here-document"),
        ("a <<<b", "it holds a here-document"),
        ("a <(b)", "a redirection in it has no plain target"),
        ("a >(b)", "a redirection in it has no plain target"),
        ("a > >(b)", "a redirection in it has no plain target"),
        ("a >", "a redirection in it has no plain target"),
        ("a > ; b", "a redirection in it has no plain target"),
        ("a <& b", "it copies from something else than a descriptor"),
        ("a >&'b'", "it holds `>&` with a quoted target, which bash expands once more"),
        ("a >& '$(b)'", "it holds `>&` with a quoted target, which bash expands once more"),
        ("a 12>b", "a redirection in it has a descriptor of several digits"),
        ("a {b}>c", "a redirection in it sets a variable"),
        ("a ;; b", "it holds `;;`"),
        ("a ;& b", "it holds `;&`"),
        ("a |& b", "it holds `|&`"),
        ("; a", "nothing stands in front of its `;`"),
        ("a && && b", "nothing stands in front of its `&&`"),
        ("a | \n | b", "nothing stands in front of its `|`"),
        ("a &&", "nothing follows its last `&&`"),
        ("a |\n", "nothing follows its last `|`"),
        ("a || # b", "nothing follows its last `||`"),
        ("a 'b", "a quote in it is not closed"),
        ('a "b', "a quote in it is not closed"),
        ('a "b\\', "a quote in it is not closed"),
        ("a \\", "a backslash at the end of a line continues something else than a list of words"),
        ("a\\\nb", "a backslash at the end of a line continues something else than a list of words"),
        ("a\\\n#b; c", "a backslash at the end of a line continues something else than a list of words"),
        ("a $\\\n(b)", "a backslash at the end of a line continues something else than a list of words"),
        ('a "$\\\n(b)"', "a backslash at the end of a line continues something else than a list of words"),
        ("a <\\\n<E", "a backslash at the end of a line continues something else than a list of words"),
        ("a\0b", "it holds the character U+0000"),
        ("a\rb", "it holds the character U+000D"),
        ("a '\x1b'", "it holds the character U+001B"),
        ("a \ud800", "it holds the character U+D800"),
        ("a\u00a0b", "it holds the character U+00A0, which some shells take for a blank"),
        ("a\u2028b", "it holds the character U+2028, which some shells take for a blank"),
    ],
)
def test_what_is_not_certain_is_not_read(line: str, why: str):
    assert refusal(line) == why


# --- what real shells do with it

SHELLS = [path for path in (shutil.which("bash"), shutil.which("dash"), "/bin/sh") if path]
NAMES = ("p1", "p2", "p3")
_PIECES = [
    *NAMES,
    *("p1", "echo", "a", "f1", "f2", "1", "2", "-", "A=1", "X=p2", "if", "then", "fi", "for", "in", "do", "done"),
    *("case", "esac", "!", "{", "}", "time", "command", "eval", "test", "cd", "sub", "=", "*", "?", "~", ",", "%", "@"),
    *(
        " ",
        " ",
        " ",
        "\t",
        "\n",
        "\\\n",
        "\\",
        "'",
        '"',
        "#",
        ";",
        "&",
        "|",
        "&&",
        "||",
        "(",
        ")",
        "<",
        ">",
        "<<",
        ">&",
    ),
    *(
        "&>",
        ">>",
        "<&",
        "$",
        "$X",
        "${X}",
        "${X:-$(p2)}",
        "$(p2)",
        "`p2`",
        "$((",
        "))",
        "$'p2'",
        '$"',
        "<(p2)",
        ">(p2)",
    ),
    *("<<E\n", "\nE\n", "<<<", "[", "]", "[[", "]]", "$[", "\r", "\u00a0", "function", "p3()", ";;", "|&", "{p1,p2}"),
]
lines = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=14).map("".join)


@dataclass
class Bench:
    """A folder in which the only programs are ones that write their name into a log."""

    root: Path

    @classmethod
    def build(cls, root: Path) -> Bench:
        for name in NAMES:
            program = root / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text('#!/bin/sh\necho "${0##*/}" >> "$LOG"\n')
            program.chmod(0o755)
        return cls(root)

    def run(self, shell: str, line: str) -> tuple[set[str], set[str]]:
        """Run *line* in *shell*, and return the programs that ran and the files that are there now."""
        log = self.root / "log"
        log.write_text("")
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            (Path(folder) / "sub").mkdir()
            environ = {"PATH": str(self.root / "bin"), "LOG": str(log), "HOME": folder}
            subprocess.run(
                [shell, "-c", "--", line],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
            )
            made = {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}
        return set(log.read_text().split()), {Path(path).name for path in made}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.build(tmp_path_factory.mktemp("bench"))


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture])
@given(line=lines)
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.wall_limit(300)
def test_no_shell_runs_or_writes_what_was_not_read(bench: Bench, shell: str, line: str):
    try:
        read = read_line(line)
    except Unreadable:
        assume(False)
        return
    ran, made = bench.run(shell, line)
    assert ran <= {step.program for step in read.steps}
    assert made <= {Path(path).name for path in read.writes}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "line",
    [
        "p1\\\n#x; p2",
        "p1 $\\\n(p2)",
        "p1 <\\\n(p2)",
        "p1 >\\\n&f1",
        "p1 & > f1",
        "{f}>f1 p1",
        "12>f1 p1",
        "p1 &>f1",
        "p1 >&'$(p2)'",
    ],
)
def test_what_other_readers_overlook_is_seen_or_refused(bench: Bench, shell: str, line: str):
    ran, made = bench.run(shell, line)
    try:
        read = read_line(line)
    except Unreadable:
        return
    assert ran <= {step.program for step in read.steps}
    assert made <= set(read.writes)
