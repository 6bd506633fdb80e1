"""Under torch.compile, vmap and export, in bfloat16 and mixed types, and over broadcast batches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint

from .catalogue import GIVEN, B, N, arguments, call

NAMES = sorted(GIVEN)


def leaves(tree: Any) -> list[Tensor]:
    return pytree.tree_leaves(tree)


def with_gradient(function: Callable[..., Any], values: Any, k: Tensor) -> list[Tensor]:
    """Outputs and the gradients of their sum with respect to every input and k."""
    tensors, shape = pytree.tree_flatten(values)
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    k = k.detach().clone().requires_grad_()
    out = leaves(function(*pytree.tree_unflatten(tensors, shape), k=k))
    loss = sum(((i + 1) * x).sum() for i, x in enumerate(out))
    gradients = torch.autograd.grad(loss, [*tensors, k], allow_unused=True)
    return [x.detach() for x in (*out, *gradients) if x is not None]


def assert_equal(got: list[Tensor], want: list[Tensor], **tolerance: float) -> None:
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_whole_equals_eager_forward_and_backward(name: str) -> None:
    torch._dynamo.reset()
    k = torch.tensor(1.7)
    compiled = torch.compile(call(name), backend="aot_eager", fullgraph=True)
    assert_equal(with_gradient(compiled, arguments(name), k), with_gradient(call(name), arguments(name), k))


COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "gyro-centering": lambda p, q, k: geometry.gyroadd(geometry.gyroneg(q, k=k), p, k=k),
    "shifted-distance": lambda p, q, k: geometry.squared_distance(geometry.horoshift(p, 0.3, k=k), q, k=k),
    "centroid": lambda p, q, k: geometry.centroid(p, q.radius, k=k),
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_inductor_equals_eager(name: str) -> None:
    torch._dynamo.reset()
    function = COMPOSITIONS[name]
    values, k = arguments("distance"), torch.tensor(1.7)
    compiled = torch.compile(function, fullgraph=True)
    got, want = with_gradient(compiled, values, k), with_gradient(function, values, k)
    assert_equal(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name: str) -> None:
    values = [arguments(name, torch.float64, seed=seed) for seed in range(3)]
    stacked = pytree.tree_map(lambda *x: torch.stack(x), *values)
    k = torch.tensor(1.7, dtype=torch.float64)
    got = leaves(torch.func.vmap(lambda *x: call(name)(*x, k=k))(*stacked))
    want = pytree.tree_map(lambda *x: torch.stack(x), *(leaves(call(name)(*value, k=k)) for value in values))
    assert_equal(got, leaves(want))


@pytest.mark.parametrize("name", NAMES)
def test_vmap_of_the_gradient_equals_a_loop(name: str) -> None:
    values = [arguments(name, torch.float64, seed=seed) for seed in range(3)]

    def gradient(*value: Any) -> list[Tensor]:
        tensors, shape = pytree.tree_flatten(value)

        def loss(*x: Tensor) -> Tensor:
            return sum(y.sum() for y in leaves(call(name)(*pytree.tree_unflatten(x, shape), k=1.7)))

        return list(torch.func.grad(loss, argnums=tuple(range(len(tensors))))(*tensors))

    stacked = pytree.tree_map(lambda *x: torch.stack(x), *values)
    got = torch.func.vmap(gradient)(*stacked)
    want = [torch.stack(x) for x in zip(*(gradient(*value) for value in values), strict=True)]
    assert_equal(got, want)


class Calls(torch.nn.Module):
    """A module around one function, which is what export takes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = call(name)

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors, k=1.7)


@pytest.mark.parametrize("name", NAMES)
def test_exported_program_equals_eager(name: str) -> None:
    values = arguments(name)
    program = torch.export.export(Calls(name), values)
    assert_equal(leaves(program.module()(*values)), leaves(call(name)(*values, k=1.7)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_narrow_storage_is_computed_in_float32_and_rounded_once(name: str, dtype: torch.dtype) -> None:
    values = arguments(name, dtype)
    for k in (1.0, torch.tensor(1.7, dtype=dtype)):
        wide = leaves(call(name)(*pytree.tree_map(torch.Tensor.float, values), k=k))
        got = leaves(call(name)(*values, k=k))
        assert all(x.dtype == dtype for x in got)
        assert_equal(got, [x.to(dtype) for x in wide], rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in NAMES if len(GIVEN[name]) > 1])
def test_mixed_types_give_the_wider_one(name: str) -> None:
    first, *rest = arguments(name, torch.float64)
    mixed = (pytree.tree_map(torch.Tensor.float, first), *rest)
    as_double = (pytree.tree_map(torch.Tensor.double, mixed[0]), *rest)
    got, want = leaves(call(name)(*mixed, k=1.7)), leaves(call(name)(*as_double, k=1.7))
    assert all(x.dtype == torch.float64 or name in ("gyroscale", "rotate", "riemannian_gradient") for x in got)
    assert_equal([x.double() for x in got], [x.double() for x in want], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_curvature_follows_the_points(name: str, dtype: torch.dtype) -> None:
    values = arguments(name, dtype)
    want = leaves(call(name)(*values, k=1.75))
    for other in (torch.float64, torch.float32, torch.bfloat16):
        got = leaves(call(name)(*values, k=torch.tensor(1.75, dtype=other)))
        assert all(x.dtype == dtype for x in got)
        assert_equal(got, want)


PAIRED = [
    "distance", "squared_distance", "gyroadd", "log_map", "exp_map", "transport", "tangent_inner", "gyroscale",
    "riemannian_gradient", "boost", "rotate", "horoshift", "concat",
]  # fmt: skip


@pytest.mark.parametrize("name", PAIRED)
def test_batches_broadcast(name: str) -> None:
    """[3, 1, 5] against [2, 5] gives [3, 2, 5], every entry as if it were computed alone."""
    first = arguments(name, torch.float64, (3, 1, B))
    second = arguments(name, torch.float64, (2, B), seed=1)
    mixed = (first[0], *second[1:])
    got = leaves(call(name)(*mixed, k=1.7))

    full = []
    for value in mixed:
        if isinstance(value, Tensor):
            full.append(value.expand(3, 2, B))
        else:
            full.append(type(value)(value[0].expand(3, 2, B), value[1].expand(3, 2, B, N)))
    want = leaves(call(name)(*full, k=1.7))
    assert all(x.shape[:3] == (3, 2, B) for x in got)
    assert_equal(got, want)


def test_pairs_and_centroids_broadcast_over_batches() -> None:
    p, _ = arguments("distance", torch.float64, (3, 1, B))
    q, _ = arguments("distance", torch.float64, (2, 7), seed=1)
    d = geometry.pairwise_distance(p, q)
    assert d.shape == (3, 2, B, 7)
    torch.testing.assert_close(d[1, 1], geometry.pairwise_distance(p.map(lambda x: x[1, 0]), q.map(lambda x: x[1])))
    single = geometry.distance(p.map(lambda x: x[1, 0].unsqueeze(1)), q.map(lambda x: x[1].unsqueeze(0)))
    torch.testing.assert_close(d[1, 1], single)
    weights = torch.rand(3, 2, 6, B, dtype=torch.float64)
    mean = geometry.centroid(p, weights)
    assert mean.shape == (3, 2, 6)
    row = geometry.centroid(p.map(lambda x: x[2, 0]), weights[2, 1, 4])
    torch.testing.assert_close(mean.radius[2, 1, 4], row.radius)
    torch.testing.assert_close(mean.direction[2, 1, 4], row.direction)


def test_empty_batches_pass_through() -> None:
    for name in NAMES:
        if name not in ("centroid", "pairwise_distance"):
            for x in leaves(call(name)(*arguments(name, batch=(0,)))):
                assert x.shape[0] == 0
    assert PolarPoint(torch.zeros(0), torch.zeros(0, 3)).shape == (0,)
