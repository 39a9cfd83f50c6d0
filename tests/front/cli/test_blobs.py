"""Stored parts at the command line: given, listed, written out."""

from __future__ import annotations

import hashlib
import wave
from pathlib import Path

import pytest
from front_shell import Serve, Shell, newest

from shoal.testing import ScriptedProvider, call

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (64).to_bytes(4, "big") + (48).to_bytes(4, "big") + b"\x08\x02"
DIGEST = hashlib.sha256(PNG).hexdigest()


@pytest.fixture
def seen(shell: Shell, serve: Serve, answers: Path, tmp_path: Path) -> str:
    """The id of a run that was given a picture, and read another file of the same bytes."""
    (answers / "copy.png").write_bytes(PNG)
    (answers / "doc.pdf").write_bytes(b"%PDF-1.7 /Type /Page /Type /Page")
    (tmp_path / "hero.png").write_bytes(PNG)
    reads = [call("read_file", path="copy.png"), call("read_file", path="doc.pdf")]
    serve(ScriptedProvider(*reads, call("submit_output", content="an answer"), "done", purposes={"titling": "A title"}))
    said = shell("run", answers, "--workdir", answers, "--brief", f"@{tmp_path / 'hero.png'}")
    assert said.status == 0, said.err
    return str(newest(shell)["run_id"])


def test_the_parts_of_a_run_are_listed_with_type_measure_and_place(shell: Shell, seen: str):
    head, *rows = shell("blobs", seen).out.splitlines()
    assert head.split() == ["name", "type", "measure", "size", "digest", "event", "in"]
    assert [row.split()[:3] for row in rows] == [
        ["hero.png", "image/png", "64x48"],
        ["copy.png", "image/png", "64x48"],
        ["doc.pdf", "application/pdf", "2"],
    ]
    assert [row.split()[-1] for row in rows] == ["brief", "conversation", "conversation"]


def test_other_programs_get_everything_that_is_known_of_a_part(shell: Shell, seen: str):
    first, _, third = shell("blobs", seen, "--json").json
    assert first == {
        "name": "hero.png",
        "mime_type": "image/png",
        "size": len(PNG),
        "width": 64,
        "height": 48,
        "pages": None,
        "seconds": None,
        "sha256": DIGEST,
        "seq": first["seq"],
        "regions": ["brief"],
    }
    assert (third["pages"], third["mime_type"]) == (2, "application/pdf")


@pytest.mark.parametrize("part", ["hero.png", DIGEST, DIGEST[:8]])
def test_a_part_is_written_out_by_its_name_or_its_digest(shell: Shell, seen: str, tmp_path: Path, part: str):
    assert shell("blobs", seen, part, "--output", tmp_path / "out.png").status == 0
    assert (tmp_path / "out.png").read_bytes() == PNG


def test_one_part_is_listed_by_itself(shell: Shell, seen: str):
    assert [row["name"] for row in shell("blobs", seen, "doc.pdf", "--json").json] == ["doc.pdf"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("nothing.png",), "has no stored part 'nothing.png'; its parts: 'hero.png', 'copy.png', 'doc.pdf'"),
        (("--output", "x"), "`--output` writes one part; name it"),
        (("hero.png", "--output", "no/such/folder/x"), "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_had_is_said(shell: Shell, seen: str, more: tuple[str, ...], message: str):
    said = shell("blobs", seen, *more)
    assert (said.status, message in said.err) == (2, True)


def test_of_a_recording_its_length_is_told(shell: Shell, serve: Serve, answers: Path, tmp_path: Path):
    with wave.open(str(tmp_path / "chime.wav"), "wb") as chime:
        chime.setparams((1, 1, 8_000, 0, "NONE", ""))
        chime.writeframes(bytes(24_000))
    serve(ScriptedProvider(call("submit_output", content="an answer"), "done", purposes={"titling": "A title"}))
    shell("run", answers, "--workdir", answers, "--brief", f"@{tmp_path / 'chime.wav'}")
    assert " 3 s " in shell("blobs", str(newest(shell)["run_id"])).out


def test_a_run_without_parts_says_so(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider(call("submit_output", content="an answer"), "done", purposes={"titling": "A title"}))
    shell("run", answers, "--workdir", answers, "--task", "Answer")
    run_id = str(newest(shell)["run_id"])
    assert shell("blobs", run_id).out == f"run {run_id} has no stored parts\n"
    assert "has no stored part 'x'; its parts: none" in shell("blobs", run_id, "x").err


def test_a_message_with_a_file_behind_it_needs_no_text(shell: Shell, seen: str, tmp_path: Path):
    said = shell("msg", seen, "", "--attach", tmp_path / "hero.png")
    assert "is over" in said.err  # it got as far as that


def test_a_file_that_is_neither_text_nor_shown_is_no_seed(shell: Shell, answers: Path, tmp_path: Path):
    (tmp_path / "odd").write_bytes(b"\xff\xfe odd")
    said = shell("run", answers, "--workdir", answers, "--brief", f"@{tmp_path / 'odd'}")
    assert (said.status, "is no UTF-8 text (byte 0); convert it first" in said.err) == (2, True)
