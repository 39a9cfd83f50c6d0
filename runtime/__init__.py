"""Runs: the actor that owns a window and walks stages; events, journal, lanes, tools, the swarm."""
