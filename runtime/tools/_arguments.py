"""From a signature to a JSON schema, and from a model's arguments to Python values.

Apart from the other modules because pydantic takes a while to import and only tools given in code need it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import docstring_parser
import pydantic

from shoal.errors import ToolInvalid


@final
@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one function.

    Args:
        description: What the function does, by its docstring.
        schema: JSON schema of its arguments.
        model: The pydantic model of its arguments.
    """

    description: str
    schema: Mapping[str, Any]
    model: type[pydantic.BaseModel]

    def parse(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args* as the Python values that the signature asks for."""
        values = self.model.model_validate(args)
        return {
            name: getattr(values, name)
            for name in type(values).model_fields
            if name in args or name in values.model_fields_set
        }


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Return the arguments of *function*.

    Raises:
        ToolInvalid: A parameter is positional-only, variadic, or of a type that no schema can say.
    """
    shown = function.__qualname__
    docs = docstring_parser.parse(function.__doc__ or "")
    said = {param.arg_name: param.description or "" for param in docs.params}
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise ToolInvalid(f"{shown!r} takes `{parameter}`; a tool's parameters need a name each")
        if name not in hints:
            raise ToolInvalid(f"{shown!r} says no type for `{name}`; annotate it, so that a model knows what to give")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], pydantic.Field(default, description=said.get(name) or None))
    try:
        model = pydantic.create_model(
            function.__name__, __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as exc:
        raise ToolInvalid(f"{shown!r} has a parameter that no JSON schema can say: {exc.message}") from exc
    schema.pop("title", None)
    for prop in schema.get("properties", {}).values():
        prop.pop("title", None)
    whole = "\n\n".join(part for part in (docs.short_description, docs.long_description) if part)
    return Arguments(whole, schema, model)
