"""Which span a request to a model belongs to, told to servers that the user lists, and to no other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import final

from shoal.errors import ConfigInvalid
from shoal.observability import names
from shoal.observability._spans import Tree, span_id_of, span_name, tree_of
from shoal.runtime import Reader
from shoal.runtime.events import RunSpawned

MOST_TREES = 4_096
"""How many trees of runs are remembered; those of others are looked up again."""


@final
class Propagation:
    """Works out the `traceparent` of requests: the ids are those that their spans get, live or exported later.

    Args:
        hosts: Who gets it: names or addresses of hosts, without scheme and port.

    Raises:
        ConfigInvalid: One of them is no host.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = frozenset(_host(host) for host in hosts)
        """Who gets it, in lower case."""
        self._trees: OrderedDict[str, Tree] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Propagation to {', '.join(sorted(self.hosts))}>"

    def traceparent(self, reader: Reader, run_id: str, root: str, seq: int, model: str) -> str:
        """Return the header of a request.

        Args:
            reader: The journal, which holds the first event of *root*.
            run_id: The run that asks.
            root: The root of its tree.
            seq: Seq of its `InferenceStarted`.
            model: The model that is asked.
        """
        tree = self._tree(reader, root)
        span_id = span_id_of(run_id, seq, span_name(names.chat_span(model)))
        return f"00-{tree.trace_id}-{span_id}-{'01' if tree.sampled else '00'}"

    def _tree(self, reader: Reader, root: str) -> Tree:
        known = self._trees.get(root)
        if known is None:
            first = next(iter(reader.read(root)), None)
            joined = first.payload.trace if first is not None and isinstance(first.payload, RunSpawned) else None
            known = self._trees[root] = tree_of(root, joined)
            if len(self._trees) > MOST_TREES:
                self._trees.popitem(last=False)
        return known


def _host(host: str) -> str:
    plain = host.strip().lower().removeprefix("[").removesuffix("]")
    if not plain or any(mark in plain for mark in "/@ ") or (plain.count(":") == 1):
        raise ConfigInvalid(f"`trace_hosts` holds {host!r}; give the host alone, such as `gateway.example`")
    return plain
