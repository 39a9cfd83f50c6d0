"""How an agentic function asks a model: the call is opened, sent, its tools are run, and its answer is read."""

from shoal.runtime.asking._answered import answered

__all__ = ["answered"]
