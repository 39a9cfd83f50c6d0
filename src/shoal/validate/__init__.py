"""Checks of a blueprint that need to know models or tools; the structural ones live in `shoal.blueprints`."""
