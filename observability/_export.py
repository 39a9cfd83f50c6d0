"""Files that other programs read traces from."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from shoal.errors import ConfigInvalid
from shoal.observability._jaeger import jaeger_json
from shoal.observability._otlp_json import otlp_json
from shoal.observability._replay import trace_of
from shoal.runtime import Reader

TraceFormat: TypeAlias = Literal["otlp-json", "jaeger"]

_WRITERS = {"otlp-json": otlp_json, "jaeger": jaeger_json}


def export_trace(
    reader: Reader,
    run_id: str,
    format: TraceFormat = "otlp-json",  # noqa: A002 - the word that the command line has for it
    *,
    service_name: str = "shoal",
    capture_content: bool = False,
) -> bytes:
    """Return the trace of the tree that *run_id* belongs to, as the content of a file.

    Exporting twice gives the same bytes, and the same spans as a live export gave.

    Args:
        reader: The journal.
        run_id: The run, or the beginning of its id.
        format: `otlp-json`, which collectors read, or `jaeger`, which Jaeger's page uploads.
        service_name: Name under which Jaeger lists it.
        capture_content: Prompts and outputs go into spans, bounded and without secrets.

    Raises:
        ConfigInvalid: There is no such format.
        RunNotFound: The journal holds no such run, or several.
        JournalDamaged: A row is torn or corrupted.
    """
    writer = _WRITERS.get(format)
    if writer is None:
        known = ", ".join(f"`{name}`" for name in get_args(TraceFormat))
        raise ConfigInvalid(f"a trace cannot be written as {format!r}; name one of {known}")
    spans = trace_of(reader, run_id, capture_content=capture_content)
    return writer(spans, {"service.name": service_name})
