"""Settings from plain data: strict keys, checked types, errors that name the place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from polarvit.training.settings import SettingsError, build, plain


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 1
    flag: bool = False
    limit: float | None = None
    kind: Literal["a", "b"] = "a"
    extra: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count must not be negative, got {self.count}")


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"inner": {"rate": "3e-3"}}, "inner", Inner(rate=3e-3)),
        ({"inner": {"rate": 1}}, "inner", Inner(rate=1.0)),
        ({"inner": {"pair": [1, 2]}}, "inner", Inner(pair=(1.0, 2.0))),
        ({"count": 3.0}, "count", 3),
        ({"count": "1e3"}, "count", 1000),
        ({"flag": "true"}, "flag", True),
        ({"limit": None}, "limit", None),
        ({"limit": 2}, "limit", 2.0),
        ({"kind": "b"}, "kind", "b"),
    ],
)
def test_values_become_their_declared_type(values: dict[str, Any], field: str, expected: Any) -> None:
    found = getattr(build(Outer, {"name": "x", **values}), field)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": {"rat": 1}}, "unknown setting 'inner.rat'; did you mean 'inner.rate'?"),
        ({"zzz": 1}, "unknown setting 'zzz'; known: "),
        ({"inner": {"rate": "fast"}}, "inner.rate: must be a number, got 'fast'"),
        ({"inner": {"rate": True}}, "inner.rate: must be a number"),
        ({"inner": {"pair": [1]}}, r"inner.pair: must have 2 entries"),
        ({"inner": {"pair": 3}}, "inner.pair: must be a list"),
        ({"inner": 3}, "inner: expected a mapping"),
        ({"count": 1.5}, "count: must be a whole number, got 1.5"),
        ({"count": True}, "count: must be a whole number"),
        ({"count": "inf"}, "count: must be a whole number"),
        ({"count": -1}, "count must not be negative, got -1"),
        ({"flag": 1}, "flag: must be true or false"),
        ({"name": 3}, "name: must be text, got 3"),
        ({"kind": "c"}, "kind: must be one of a, b, got 'c'"),
        ({"extra": [1]}, "extra: must be a mapping"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("?", r"\?")):
        build(Outer, {"name": "x", **values})


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="name"):
        build(Outer, {})


def test_plain_data_builds_the_same_settings_again() -> None:
    settings = build(Outer, {"name": "x", "extra": {"size": [1, 2]}, "inner": {"pair": [0.25, 0.5]}})
    assert build(Outer, plain(settings)) == settings
