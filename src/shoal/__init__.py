"""Shoal: swarms of language-model agents, each an actor with its own context window."""
