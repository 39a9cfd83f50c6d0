"""Titles of runs: what of a model's reply is one, and what stands in for it."""

from __future__ import annotations

import re

TITLE_CHARS = 80
"""Most characters of a title."""
TITLED_CHARS = 2_000
"""So much of a task is shown to whoever titles it."""
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)


def title_of(said: str) -> str | None:
    """Return the title that a model gave: its first line, without reasoning and quotes; `None` for no usable one."""
    lines = [line.strip().strip("\"'`#*").strip() for line in _THINKING.sub("", said).splitlines()]
    title = next((line for line in lines if line), "")
    return title if title and len(title) <= TITLE_CHARS and title.isprintable() else None


def first_words(task: str) -> str:
    """Return the first words of *task* as a title."""
    line = " ".join(task.split())
    if len(line) <= TITLE_CHARS:
        return line or "untitled"
    return f"{line[: TITLE_CHARS - 1].rsplit(' ', 1)[0]}…"
