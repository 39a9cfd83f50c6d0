"""Anthropic Messages: its rules, its cache, its replies."""
