"""Rules of `.gitignore` files, held against what their manual says and against git itself."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.runtime.tools._ignore import read_rules, verdict
from shoal.runtime.tools._listing import list_folder


def ignores(rules: str, path: str) -> bool | None:
    """Say what *rules* say of *path*; one that ends in `/` is a folder."""
    return verdict(read_rules(rules), path.rstrip("/").split("/"), folder=path.endswith("/"))


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("a", "a"),
        ("a", "b/c/a"),
        ("a", "a/"),
        ("a/", "b/a/"),
        ("/a", "a"),
        ("b/a", "b/a"),
        ("*.log", "x/y.log"),
        ("a?c", "abc"),
        ("[ab]", "b"),
        ("[!ab]", "c"),
        ("[^ab]", "c"),
        ("[a-c]x", "bx"),
        ("[[:digit:]]", "7"),
        ("[]]", "]"),
        ("**/a", "a"),
        ("**/a", "x/y/a"),
        ("a/**", "a/b"),
        ("a/**", "a/b/c/"),
        ("a/**/b", "a/b"),
        ("a/**/b", "a/x/y/b"),
        ("a/**/b/**/c", "a/x/b/y/b/z/c"),
        ("***/a", "x/a"),
        ("**", "x/y"),
        ("a**b", "axxb"),
        (r"\#a", "#a"),
        (r"\!a", "!a"),
        (r"\*", "*"),
        ("a\\ ", "a "),
        ("a   ", "a"),
        ("a\r", "a"),
        ("\ufeffa", "a"),
        ("é*", "été"),
        ("a\u2028b", "a\u2028b"),
        ("*", "new\nline"),
    ],
)
def test_a_rule_matches(rule: str, path: str):
    assert ignores(rule, path) is True


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("", "a"),
        ("# a", "a"),
        ("#", "#"),
        ("a/", "a"),
        ("/a", "b/a"),
        ("b/a", "c/b/a"),
        ("a", "a/b"),
        ("a", "ab"),
        ("A", "a"),
        ("*.log", "a.log.txt"),
        ("a?b", "a/b"),
        ("a*b", "a/b"),
        ("a/*", "a/b/c"),
        ("a/**", "a/"),
        ("a/**/b", "a/x"),
        ("a//b", "a/b"),
        ("/", "a"),
        ("//", "a"),
        ("!", "a"),
        ("a\\", "a"),
        ("a\\", "a\\"),
        ("\\", "\\"),
        ("[z-a]", "b"),
        ("[[:nothing:]]", "a"),
        (r"\*", "a"),
        ("a\\\\ ", "a\\ "),
    ],
)
def test_a_rule_does_not_match(rule: str, path: str):
    assert ignores(rule, path) is None


@pytest.mark.parametrize(
    ("rules", "said"),
    [("*.log\n!a.log", False), ("!a.log\n*.log", True), ("*.log\n!a.log\na.*", True), ("!b", None), ("!*.log", False)],
)
def test_the_last_rule_that_matches_decides(rules: str, said: bool | None):
    assert ignores(rules, "a.log") is said


@pytest.mark.parametrize("rule", ["*a" * 40 + "b", "**/a/" * 20 + "b", "a*" * 50, "[!b]*" * 30 + "c"])
def test_a_hostile_rule_takes_no_time(rule: str):
    began = time.process_time()
    ignores(rule, "/".join(["a" * 200] * 20))
    assert time.process_time() - began < 0.5


PARTS = st.sampled_from(["a", "b", "*", "**", "?", "a*", "*b", "[ab]", "[!a]", "ab", "\\a", "***", "*.*", "a.b"])
RULE = st.builds(
    lambda sign, first, parts, last: f"{sign}{first}{'/'.join(parts)}{last}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/", " ", "/**"]),
)
NAMES = ("a", "b", "ab", "a.b")


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every path of up to three names out of four, as far as folders and files allow."""
    root: Path = tmp_path_factory.mktemp("forest")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for one in NAMES:
        for two in NAMES[:3]:
            (root / one / two).mkdir(parents=True)
            for three in NAMES:
                (root / one / two / three).touch()
        (root / one / NAMES[3]).touch()
    return root.resolve()


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git to compare with")
@settings(max_examples=60)
@given(above=st.lists(RULE, max_size=4), below=st.lists(RULE, max_size=2))
def test_what_is_left_is_what_git_leaves(forest: Path, above: list[str], below: list[str]):
    (forest / ".gitignore").write_text("\n".join(above))
    (forest / "a" / ".gitignore").write_text("\n".join(below))
    command = ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-o", "--exclude-standard"]
    listed = subprocess.run(command, cwd=forest, check=True, capture_output=True, text=True).stdout.splitlines()
    ours = list_folder(forest, ".", recursive=True, most=1000, hidden=None)
    assert list(ours.names) == sorted(name for name in listed if not name.endswith(".gitignore"))
