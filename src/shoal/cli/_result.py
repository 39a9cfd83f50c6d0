"""`shoal result`: how a run ended, and what it submitted."""

from __future__ import annotations

from shoal.cli._places import JournalOption, JsonOption, RunArgument, program_of, run_reader, status_of
from shoal.cli._print import complain, print_json, print_text
from shoal.cli._progress import Progress
from shoal.cli._summary import FAILED, PAUSED, plain_run
from shoal.runtime import RunState, fold


def command(run: RunArgument, /, *, journal: JournalOption = None, as_json: JsonOption = False) -> int:
    """Print what a run submitted; the exit status says how it ended."""
    with run_reader(run, journal) as (reader, row):
        events = list(reader.read(row.run_id))
        state = fold(row.run_id, program_of(reader, row.run_id), events, definition=reader.definition, load=reader.part)
        progress = Progress()
        for each in reader.runs(root=row.root):
            progress.replay(events if each.run_id == row.run_id else reader.read(each.run_id))
        where = status_of(row, reader.owners())
    progress.runs[row.run_id].status = where
    output = _output(state)
    if as_json:
        flags = {} if state.ended is None else state.ended.flags
        print_json(plain_run(progress, progress.runs[row.run_id], output if row.ended else None, flags))
    elif row.ended and output is not None:
        print_text(output)
    if not row.ended:
        how = "wait for it" if where == "running" else f"go on with `shoal resume {row.run_id}`"
        if row.questions:
            how = f"it asks somebody, see `shoal answer {row.run_id}`"
        complain(f"run {row.run_id} is {where}, in stage {row.stage!r}, and has no result yet; {how}")
        return PAUSED
    if where in ("error", "cancelled"):
        complain(f"run {row.run_id} ended {where!r}: {progress.runs[row.run_id].reason}")
        return FAILED
    return 0


def _output(state: RunState) -> str | None:
    return str(state.output) if state.output is not None else str(state.last_text) or None
