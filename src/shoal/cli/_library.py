"""`shoal library`: the bundled blueprints."""

from __future__ import annotations

from shoal.blueprints import library, load
from shoal.cli._places import JsonOption
from shoal.cli._print import line, print_json, print_table


def command(*, as_json: JsonOption = False) -> int:
    """List the bundled blueprints."""
    bundled = [(name, path, load(path)) for name, path in library().items()]
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "version": blueprint.version,
                    "description": blueprint.description,
                    "path": str(path),
                    "stages": [stage.name for stage in blueprint.stages],
                }
                for name, path, blueprint in bundled
            ]
        )
        return 0
    print_table(
        ("name", "version", "description", "path"),
        [(name, line(made.version), line(made.description), str(path)) for name, path, made in bundled],
    )
    return 0
