"""Typed settings from plain data: strict keys, clear errors, no surprises from YAML.

A recipe is a tree of frozen dataclasses. Values are checked against the annotations; a key that does not exist is an
error that suggests the nearest one, and `3e-3`, which YAML reads as text, becomes the number it looks like.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


class SettingsError(ValueError):
    """A setting that cannot be used; the message names it by its full path."""


def build(cls: type[T], values: Any, path: str = "") -> T:
    """An instance of the dataclass `cls` from a mapping."""
    if not isinstance(values, Mapping):
        raise SettingsError(f"{path or cls.__name__}: expected a mapping of settings, got {values!r}")
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    arguments = {}
    for key, value in values.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in names:
            raise SettingsError(f"unknown setting '{where}'; {nearest(str(key), hints, path)}")
        arguments[key] = convert(hints[key], value, where)
    if absent := [name for key in required(cls) if key not in arguments for name in leaves(hints[key], key)]:
        named = ", ".join(f"'{path}.{name}'" if path else f"'{name}'" for name in absent)
        raise SettingsError(f"missing setting{'s' if len(absent) > 1 else ''} {named}")
    try:
        return cls(**arguments)
    except SettingsError:
        raise  # it names its own path
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{path or cls.__name__}: {error}") from error


def required(cls: Any) -> list[str]:
    """Fields of a dataclass that have no default."""
    fields = dataclasses.fields(cls)
    return [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]


def leaves(hint: Any, name: str) -> list[str]:
    """What must be said for a required field: itself, or the required settings of the group that it is."""
    if not dataclasses.is_dataclass(hint):
        return [name]
    hints = typing.get_type_hints(hint)
    return [f"{name}.{leaf}" for key in required(hint) for leaf in leaves(hints[key], key)]


def nearest(key: str, hints: Mapping[str, Any], path: str = "") -> str:
    """A hint for a key that is misspelt, or that belongs to a group inside the one at `path`."""
    inside = [f"{name}.{key}" for name, hint in hints.items() if dataclasses.is_dataclass(hint) and has(hint, key)]
    near = inside or difflib.get_close_matches(key, hints, 1)
    return f"did you mean '{f'{path}.' if path else ''}{near[0]}'?" if near else f"known: {', '.join(sorted(hints))}"


def has(cls: Any, key: str) -> bool:
    """Whether a dataclass has this field."""
    return any(field.name == key for field in dataclasses.fields(cls))


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type, or an error naming `where`."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _first(options, value, where)
    if origin is Literal:
        if value in options:
            return value
        raise SettingsError(f"{where}: must be one of {', '.join(map(str, options))}, got {value!r}")
    if hint is type(None):
        if value is None or value == "null":
            return None
        raise SettingsError(f"{where}: must be null, got {value!r}")
    if dataclasses.is_dataclass(hint):
        return build(hint, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SettingsError(f"{where}: must be a list, got {value!r}")
        kinds = [options[0]] * len(value) if len(options) == 2 and options[1] is Ellipsis else list(options)
        if len(kinds) != len(value):
            raise SettingsError(f"{where}: must have {len(kinds)} entries, got {value!r}")
        return tuple(
            convert(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where}: must be a mapping, got {value!r}")
        return dict(value)
    return _scalar(hint, value, where)


def _first(options: tuple[Any, ...], value: Any, where: str) -> Any:
    """The first alternative that takes the value; null first, so that it never becomes text."""
    wrong = []
    for option in sorted(options, key=lambda o: o is not type(None)):
        try:
            return convert(option, value, where)
        except SettingsError as error:
            wrong.append(error)
    raise wrong[-1]


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _scalar(hint: Any, value: Any, where: str) -> Any:
    try:
        if hint is bool:
            if isinstance(value, bool):
                return value
            return {"true": True, "false": False}[str(value).lower()]
        if hint is int and not isinstance(value, bool):
            number = float(value)
            if number == int(number):
                return int(number)
        if hint is float and not isinstance(value, bool):
            return float(value)
        if hint is str and isinstance(value, str):
            return value
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise SettingsError(f"{where}: must be {_WORDS[hint]}, got {value!r}")


def plain(settings: Any) -> Any:
    """Settings back to data that YAML and JSON can write."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return {field.name: plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}
    if isinstance(settings, tuple | list):
        return [plain(item) for item in settings]
    if isinstance(settings, dict):
        return {key: plain(item) for key, item in settings.items()}
    return settings
