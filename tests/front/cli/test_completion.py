"""`shoal completion`: command lines complete themselves."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from front_shell import Shell

# Completes the word `ca` behind `shoal` in a shell that has read the script.
COMPLETES = """
COMP_WORDS=(shoal ca)
COMP_CWORD=1
_shoal
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_names_the_commands(shell: Shell, name: str):
    said = shell("completion", name)
    assert (said.status, said.err) == (0, "")
    assert all(command in said.out for command in ("answer", "validate", "--workdir"))


def test_the_script_completes_a_command(shell: Shell):
    bash = shutil.which("bash")
    assert bash is not None
    script = shell("completion", "bash").out
    said = subprocess.run([bash, "-c", script + COMPLETES], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["cancel"]


def test_another_shell_is_refused_with_those_that_there_are(shell: Shell):
    said = shell("completion", "tcsh")
    assert (said.status, said.out) == (2, "")
    assert "bash" in said.err
