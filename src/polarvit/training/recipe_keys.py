"""The keys of a recipe, read from the dataclasses: names, types, defaults and what they mean."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from polarvit.training.recipe import Recipe
from polarvit.training.settings import plain


@dataclass(frozen=True)
class Key:
    """One setting of a recipe."""

    path: str
    kind: str
    default: str
    """As YAML would write it; empty if the key must be given."""
    meaning: str


def keys(cls: type = Recipe, prefix: str = "") -> Iterator[Key]:
    """Every setting below a dataclass, in the order of the file."""
    hints, meanings = typing.get_type_hints(cls), field_docs(cls)
    for field in dataclasses.fields(cls):
        path, hint = prefix + field.name, hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from keys(typing.cast(type, hint), f"{path}.")
        else:
            yield Key(path, spell(hint), _default(field), meanings.get(field.name, ""))


@lru_cache
def field_docs(cls: type) -> dict[str, str]:
    """The text under each field of a class, in one line."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def spell(hint: Any) -> str:
    """A type for people: `number`, `list of 2 numbers`, `fp32 | tf32`, `text or null`."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " | ".join(map(str, options))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(spell(option) for option in options)
    if origin is tuple:
        return f"list of {len(options)} {spell(options[0])}s"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return "mapping" if origin is dict else names[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return _written(field.default_factory())
    return "" if field.default is dataclasses.MISSING else _written(plain(field.default))


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
