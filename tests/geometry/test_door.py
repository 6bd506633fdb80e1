"""Bad input: a ValueError at the door names function, argument, value and what was expected; NaN passes through."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import add, mul
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent, validate

from .catalogue import GIVEN, arguments, call

NAMES = sorted(GIVEN)
FLAT = ("from_tangent0", "to_tangent0", "gyroneg", "gyroscale", "rotate", "tangent_inner")
"""Those into which k does not enter."""


def raises(name: str, *values: Any, match: str, **options: Any) -> None:
    """The message starts with the function's name and matches, in order, the given words."""
    with pytest.raises(ValueError, match=re.compile(rf"^{name}: .*{match}", re.DOTALL)):
        getattr(geometry, name)(*values, **options)


def raises_call(name: str, *values: Any, match: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=re.compile(rf"^{name}: .*{match}", re.DOTALL)):
        call(name)(*values, **options)


def point(*batch: int, n: int = 4) -> PolarPoint:
    return PolarPoint(torch.ones(batch), torch.eye(n)[0].expand(*batch, n))


def tangent(*batch: int, n: int = 4) -> PolarTangent:
    return PolarTangent(torch.ones(batch), torch.zeros(*batch, n))


@pytest.mark.parametrize("k", [0, -1.0, float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("name", [*NAMES, "validate"])
def test_a_number_k_must_be_positive_and_finite(name: str, k: float) -> None:
    values = arguments("to_space") if name == "validate" else arguments(name)
    function = validate if name == "validate" else call(name)
    with pytest.raises(ValueError, match=rf"^{name}: k must be positive and finite .* got {k}"):
        function(*values, k=k)


@pytest.mark.parametrize("k", ["1", None, True, torch.ones(1), torch.ones(2), torch.tensor(1)], ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_k_must_be_a_number_or_a_floating_scalar_tensor(name: str, k: Any) -> None:
    raises_call(name, *arguments(name), k=k, match="k must be a number or a 0-dim floating tensor, got")


@pytest.mark.parametrize("name", NAMES)
def test_integer_tensors_are_refused(name: str) -> None:
    """Every tensor argument, one after the other."""
    values = arguments(name)
    tensors, shape = pytree.tree_flatten(values)
    for index in range(len(tensors)):
        changed = [x.long() if i == index else x for i, x in enumerate(tensors)]
        raises_call(name, *pytree.tree_unflatten(changed, shape), match=r"must be a floating tensor, got torch\.int64")


@pytest.mark.parametrize("name", NAMES)
def test_plain_numbers_and_lists_are_no_points(name: str) -> None:
    """The first argument of every function."""
    _, *rest = arguments(name)
    expected = r"must be a (PolarPoint|PolarTangent|tensor)"
    raises_call(name, 3, *rest, match=expected)
    if name != "concat":
        raises_call(name, [[1.0, 2.0]], *rest, match=expected)


@pytest.mark.parametrize("name", [name for name in NAMES if GIVEN[name][0] in ("p", "xi")])
def test_radius_and_direction_must_fit_together(name: str) -> None:
    first, *rest = arguments(name)
    for bad in (type(first)(first[0][:3], first[1]), type(first)(first[0], first[1][..., :0])):
        raises_call(name, bad, *rest, match=r"(direction|perpendicular) must have shape \[\d, 'n'\] .* got \[5, [04]\]")
    lone = type(first)(2.0, first[1])
    raises_call(name, lone, *rest, match=r"\.(radius|radial) must be a tensor, got float")


@pytest.mark.parametrize("name", [name for name in NAMES if GIVEN[name][0] in ("v", "small", "ambient")])
def test_coordinates_need_a_last_axis(name: str) -> None:
    for bad in (torch.tensor(1.0), torch.ones(3, 0)):
        raises(name, bad, match=r"must have shape \[\.\.\., n\] with n >= 1, got \[")
    raises("from_ambient", torch.ones(3, 1), match=r"x must have shape \[\.\.\., n\+1\] with n >= 1, got \[3, 1\]")


PAIRS = ["distance", "squared_distance", "pairwise_distance", "gyroadd", "log_map", "riemannian_gradient", "transport"]


@pytest.mark.parametrize("name", PAIRS)
def test_two_points_must_live_in_one_space_and_broadcast(name: str) -> None:
    rest = (tangent(2, 5),) if name == "transport" else ()
    raises(name, point(2, 5), point(2, 5, n=3), *rest, match="has dimension 4, .* has dimension 3; must be equal")
    raises(name, point(2, 5), point(3, 5), *rest, match=r"batch shapes of .* \[2.*\] and .* \[3.*\] do not broadcast")
    raises(name, point(2, 5), torch.ones(2, 5), *rest, match="must be a PolarPoint, got Tensor")


@pytest.mark.parametrize("name", ["exp_map", "transport"])
def test_a_tangent_vector_must_fit_its_point(name: str) -> None:
    points = (point(5), point(5)) if name == "transport" else (point(5),)
    raises(name, *points, tangent(5, n=3), match="perpendicular has dimension 3, p has 4; must be equal")
    raises(name, *points, tangent(2), match=r"batch shapes of p \[5\] and xi \[2\] do not broadcast")
    raises(name, *points, point(5), match="xi must be a PolarTangent, got PolarPoint")


def test_two_tangent_vectors_must_fit_each_other() -> None:
    raises("tangent_inner", tangent(5), tangent(5, n=3), match="xi has dimension 4, zeta has 3; must be equal")
    raises("tangent_inner", tangent(5), tangent(2), match=r"batch shapes of xi \[5\] and zeta \[2\] do not broadcast")


@pytest.mark.parametrize("name", ["boost", "rotate", "horoshift", "gyroscale"])
def test_a_step_must_be_a_number_or_broadcast(name: str) -> None:
    p = "x" if name == "gyroscale" else "p"
    raises(name, point(5), torch.ones(3), match=rf"batch shapes of {p} \[5\] and t \[3\] do not broadcast")
    raises(name, point(5), "far", match="t must be a number or a floating tensor, got str 'far'")
    raises(name, point(5), None, match="t must be a number or a floating tensor, got NoneType None")


@pytest.mark.parametrize("axes", [(0, 4), (-1, 0), (1, 1), (0,), (), 0, (0.5, 1), "01"], ids=str)
@pytest.mark.parametrize("name", ["rotate", "horoshift"])
def test_axes_must_be_distinct_and_known(name: str, axes: Any) -> None:
    raises(name, point(5), 1.0, axes=axes, match=r"axes must be 2 or more distinct space axes between 0 and 3, got")


@pytest.mark.parametrize("axis", [4, -1, 0.5, None], ids=str)
@pytest.mark.parametrize("name", ["boost", "busemann"])
def test_an_axis_must_be_known(name: str, axis: Any) -> None:
    values = (1.0,) if name == "boost" else ()
    raises(name, point(5), *values, axis=axis, match=r"axes must be 1 or more distinct space axes between 0 and 3, got")


def test_rotations_have_two_axes_and_joint_shifts_a_step_for_each_slide() -> None:
    raises("rotate", point(5), 1.0, axes=(0, 1, 2), match=r"axes must be 2 distinct space axes, got \(0, 1, 2\)")
    raises("horoshift", point(5), 1.0, axes=(0, 1, 2), match=r"t must have shape \[\.\.\., 2\] .* got \[\]")
    raises("horoshift", point(5), torch.ones(5, 3), axes=(0, 1, 2), match=r"\[\.\.\., 2\] .* got \[5, 3\]")


def test_weights_are_told_by_their_dimensions_alone() -> None:
    expected = r"weights must be \[\.\.\., M\] or \[\.\.\., N, M\] for points"
    raises("centroid", point(2, 5), torch.ones(5), match=rf"{expected} \[2, 5\], got \[5\]")
    raises("centroid", point(2, 5), torch.ones(1, 2, 3, 5), match=rf"{expected} \[2, 5\], got \[1, 2, 3, 5\]")
    raises("centroid", point(2, 5), torch.ones(2, 4), match=rf"{expected} \[2, 5\], got \[2, 4\]")
    raises("centroid", point(2, 5), torch.ones(3, 7, 5), match="batch shapes of points .* do not broadcast")
    raises("centroid", point(2, 5), [1.0] * 5, match="weights must be a tensor, got list")
    raises("centroid", point(), match=r"points must have shape \[\.\.\., M\] with M >= 1, got \[\]")
    raises("centroid", point(2, 0), match=r"points must have shape \[\.\.\., M\] with M >= 1, got \[2, 0\]")


def test_pairs_need_rows() -> None:
    raises("pairwise_distance", point(), point(5), match=r"p must have shape \[\.\.\., N\] with N >= 1, got \[\]")
    raises("pairwise_distance", point(5), point(2, 0), match=r"q must have shape \[\.\.\., N\] .* got \[2, 0\]")


def test_joins_and_cuts_must_fit() -> None:
    raises("concat", [], match=r"points must be a non-empty sequence of PolarPoints, got \[\]")
    raises("concat", [point(5), torch.ones(5)], match=r"points\[1\] must be a PolarPoint, got Tensor")
    raises("concat", [point(5), point(3)], match=r"batch shapes of points\[0\] \[5\] and points\[1\] \[3\]")
    raises("concat", point(), match=r"points must be a sequence or a PolarPoint \[\.\.\., H\], got a single point")
    raises("split", point(5), 3, match="dimension 4 is not divisible into sections = 3")
    raises("split", point(5), 0, match="sections must be a positive integer, got 0")
    raises("split", point(5), 2.0, match=r"sections must be a positive integer, got 2\.0")
    raises("split", point(5), [1, 2], match=r"sections must sum to the dimension 4, got \[1, 2\]")
    raises("split", point(5), [5, -1], match=r"sections\[1\] must be a positive integer, got -1")
    raises("split_heads", point(5), 3, match="dimension 4 is not divisible by heads = 3")
    raises("split_heads", point(5), 0, match="heads must be a positive integer, got 0")


def test_validate_returns_a_good_point_and_reads_a_bad_one() -> None:
    p = point(3)
    assert validate(p) is p
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        validate(arguments("to_space", dtype)[0])
    raises("validate", PolarPoint(-p.radius, p.direction), match=r"point\.radius must be non-negative; 3 of 3 .* -1")
    raises("validate", PolarPoint(p.radius, 1.001 * p.direction), match=r"direction\| must be 1 to within .* 1\.001")
    broken = p.radius.clone()
    broken[1] = float("nan")
    raises("validate", PolarPoint(broken, p.direction), match=r"point\.radius must be finite; 1 of 3 .* \[1\]: nan")
    raises("validate", PolarPoint(p.radius / 0, p.direction), match=r"point\.radius must be finite")
    raises("validate", PolarPoint(p.radius, p.direction * float("nan")), match=r"point\.direction must be finite")
    raises("validate", p, k=torch.tensor(-1.0), match=r"k must be positive .* got -1")
    raises("validate", p, k=torch.tensor(float("nan")), match=r"k must be positive .* got nan")
    raises("validate", torch.ones(3), match="point must be a PolarPoint, got Tensor")
    raises("validate", PolarPoint(p.radius[:2], p.direction), match=r"point\.direction must have shape")


FROM = ["from_ambient", "from_space", "from_tangent0", "from_ball", "from_klein"]


@pytest.mark.parametrize("name", FROM)
def test_checked_conversions_read_their_data(name: str) -> None:
    (x,) = arguments(name)
    getattr(geometry, name)(x, check=True)
    for bad in (float("nan"), float("inf")):
        broken = x.clone()
        broken[2, 1] = bad
        raises(name, broken, check=True, match=r"must be finite; 1 of \d+ are not, first at \[2, 1\]")
        getattr(geometry, name)(broken)
    raises(name, x, check=True, k=torch.tensor(-2.0), match=r"k must be positive .* got -2")


def test_checked_conversions_know_their_models() -> None:
    (x,) = arguments("from_ambient")
    off = x.clone()
    off[1, 0] += 0.01
    raises(
        "from_ambient", off, check=True, match=r"x\[\.\.\., 0\] must be sqrt\(k \+ .*; 1 of 5 are not, first at \[1\]"
    )
    raises("from_ambient", x, check=True, k=2.0, match=r"must be sqrt\(k \+")
    outside = torch.tensor([[0.1, 0.2], [1.0, 1.0]])
    raises("from_ball", outside, check=True, match=r"\|y\| must be less than 1; 1 of 2 are not, first at \[1\]: 1\.41")
    geometry.from_ball(outside, k=2.5, check=True)
    raises("from_klein", outside, check=True, k=2.5, match=r"\|y\| must be less than 1; 1 of 2")


@pytest.mark.parametrize("name", NAMES)
def test_nan_in_gives_nan_out(name: str) -> None:
    """In each tensor argument in turn: no exception, and no number that hides it."""
    values = arguments(name)
    tensors, shape = pytree.tree_flatten(values)
    for index, x in enumerate(tensors):
        broken = x.clone()
        broken.view(-1)[0] = float("nan")
        if name == "from_ambient":
            broken[0] = float("nan")  # the time coordinate alone is not read
        changed = [broken if i == index else y for i, y in enumerate(tensors)]
        out = pytree.tree_leaves(call(name)(*pytree.tree_unflatten(changed, shape), k=1.7))
        assert any(y.isnan().any() for y in out), f"NaN in tensor {index} of {name} disappeared"


@pytest.mark.parametrize(
    "name", ["gyroadd", "distance", "centroid", "busemann", "horoshift", "split", "concat", "log_map"]
)
def test_nan_far_out_gives_nan_out(name: str) -> None:
    """The branches for large radii let it through as well."""
    values = arguments(name)
    far = [PolarPoint(x.radius + 300, x.direction) if isinstance(x, PolarPoint) else x for x in values]
    first = far[0]
    radius = first.radius.clone()
    radius[0] = float("nan")
    out = pytree.tree_leaves(call(name)(PolarPoint(radius, first.direction), *far[1:]))
    assert any(y.isnan().any() for y in out)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FLAT])
def test_nan_curvature_gives_nan_out(name: str) -> None:
    out = pytree.tree_leaves(call(name)(*arguments(name), k=torch.tensor(float("nan"))))
    assert any(y.isnan().any() for y in out)


@pytest.mark.parametrize("kind", [PolarPoint, PolarTangent])
@pytest.mark.parametrize("what", [add, mul], ids=["+", "*"])
def test_sums_and_multiples_of_tuples_are_refused(kind: type, what: Callable[[object, object], object]) -> None:
    """They would join or repeat the tuple: a thing of four tensors that fails somewhere else."""
    x = kind(torch.ones(2), torch.eye(2))
    for other in (x, 2, 2.0, torch.ones(2), (1,)):
        for pair in ((x, other), (other, x)):
            with pytest.raises(TypeError, match=rf"{kind.__name__}: .* no \+ and no"):
                what(*pair)
