"""The command line, `shoal`. Its commands use what any user of the library can use."""

from shoal.cli._app import main

__all__ = ["main"]
