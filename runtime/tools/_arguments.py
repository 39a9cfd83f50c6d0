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
        model: The pydantic model of its arguments; its fields are numbered, so that a parameter may have any name.
    """

    description: str
    schema: Mapping[str, Any]
    model: type[pydantic.BaseModel]

    def parse(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args* as the Python values that the signature asks for; what is left out is left to its default.

        Raises:
            ToolInvalid: A value is not what the signature asks for; all of them are listed.
        """
        try:
            values = self.model.model_validate(args)
        except pydantic.ValidationError as exc:
            problems = (f"{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in exc.errors())
            raise ToolInvalid(f"the arguments are wrong: {'; '.join(problems)}") from exc
        fields = self.model.model_fields.items()
        return {str(field.alias): getattr(values, name) for name, field in fields if name in values.model_fields_set}


def arguments_of(function: Callable[..., Any], *, skip: int = 0) -> Arguments:
    """Return the arguments of *function*, but for the first *skip*, which no model gives.

    Raises:
        ToolInvalid: A parameter is positional-only, variadic, or of a type that no schema can say.
    """
    shown = function.__qualname__
    docs = docstring_parser.parse(function.__doc__ or "")
    said = {param.arg_name: param.description for param in docs.params if param.description}
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as exc:
        raise ToolInvalid(f"{shown!r} has an annotation that means nothing where it stands: {exc}") from exc
    fields: dict[str, Any] = {}
    for number, (name, parameter) in enumerate([*inspect.signature(function).parameters.items()][skip:]):
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise ToolInvalid(f"{shown!r} takes `{parameter}`; a tool's parameters need a name each")
        if name not in hints:
            raise ToolInvalid(f"{shown!r} says no type for `{name}`; annotate it, so that a model knows what to give")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"field_{number}"] = (hints[name], pydantic.Field(default, alias=name))
    try:
        model = pydantic.create_model(
            function.__name__, __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as exc:
        raise ToolInvalid(f"{shown!r} has a parameter that no JSON schema can say: {exc.message}") from exc
    schema.pop("title", None)
    for name, prop in schema.get("properties", {}).items():
        prop.pop("title", None)
        if name in said:
            prop.setdefault("description", said[name])
    whole = "\n\n".join(part for part in (docs.short_description, docs.long_description) if part)
    return Arguments(whole, schema, model)
