"""Gradients: against finite differences, at the origin, at coinciding points, in float32, and what backward keeps."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import pytest
import torch
from oracle import Exact
from samples import pair
from torch import Tensor

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent, from_tangent0, to_tangent0

Loss = Callable[..., Tensor]


def tangent_at(p: PolarPoint, x: Tensor) -> PolarTangent:
    """A tangent vector from n free numbers: the first radial, the rest of x made perpendicular."""
    return PolarTangent(x[..., 0], x - (x * p.direction).sum(-1, keepdim=True) * p.direction)


def flat(result: Tensor | tuple) -> tuple[Tensor, ...]:
    """Smooth outputs: points become v = r u, tangent vectors their components."""
    if isinstance(result, PolarPoint):
        return (to_tangent0(result),)
    if isinstance(result, Tensor):
        return (result,)
    return tuple(x for part in result for x in (flat(part) if isinstance(part, tuple) else (part,)))


def ambient_tangent(p: PolarPoint, xi: PolarTangent, k: Tensor | float) -> Tensor:
    """Space part of a tangent vector: does not depend on the frame, so it is smooth at the origin too."""
    a = p.radius / torch.as_tensor(k).sqrt()
    return (xi.radial * torch.cosh(a)).unsqueeze(-1) * p.direction + xi.perpendicular


# Every function of two free vectors v, w [5, 4], a step t [5] and a learnable k.
FUNCTIONS: dict[str, Loss] = {
    "distance": lambda v, w, t, k: geometry.distance(from_tangent0(v), from_tangent0(w), k=k),
    "squared_distance": lambda v, w, t, k: geometry.squared_distance(from_tangent0(v), from_tangent0(w), k=k),
    "pairwise_distance": lambda v, w, t, k: geometry.pairwise_distance(from_tangent0(v), from_tangent0(w), k=k),
    "centroid": lambda v, w, t, k: geometry.centroid(from_tangent0(v), w.mT.sigmoid(), k=k),
    "centroid-one-row": lambda v, w, t, k: geometry.centroid(from_tangent0(v), t.square(), k=k),
    "tangent_inner": lambda v, w, t, k: geometry.tangent_inner(
        tangent_at(from_tangent0(v), w), tangent_at(from_tangent0(v), v + w), k=k
    ),
    "riemannian_gradient": lambda v, w, t, k: geometry.riemannian_gradient(from_tangent0(v), PolarPoint(t, w), k=k),
    "exp_map": lambda v, w, t, k: geometry.exp_map(from_tangent0(v), tangent_at(from_tangent0(v), w), k=k),
    "log_map": lambda v, w, t, k: geometry.log_map(from_tangent0(v), from_tangent0(w), k=k),
    "transport": lambda v, w, t, k: geometry.transport(
        from_tangent0(v), from_tangent0(w), tangent_at(from_tangent0(v), v - w), k=k
    ),
    "gyroadd": lambda v, w, t, k: geometry.gyroadd(from_tangent0(v), from_tangent0(w), k=k),
    "gyro_centering": lambda v, w, t, k: geometry.gyroadd(
        geometry.gyroneg(from_tangent0(w), k=k), from_tangent0(v), k=k
    ),
    "gyroscale": lambda v, w, t, k: geometry.gyroscale(from_tangent0(v), t, k=k),
    "horoshift": lambda v, w, t, k: geometry.horoshift(from_tangent0(v), t, axes=(1, 2), k=k),
    "joint_horoshift": lambda v, w, t, k: geometry.horoshift(from_tangent0(v), w[:, :2], axes=(3, 0, 1), k=k),
    "boost": lambda v, w, t, k: geometry.boost(from_tangent0(v), t, axis=2, k=k),
    "rotate": lambda v, w, t, k: geometry.rotate(from_tangent0(v), t, axes=(0, 3), k=k),
    "busemann": lambda v, w, t, k: geometry.busemann(from_tangent0(v), axis=1, k=k),
    "concat": lambda v, w, t, k: geometry.concat([from_tangent0(v), from_tangent0(w)], k=k),
    "concat-heads": lambda v, w, t, k: geometry.concat(from_tangent0(torch.stack([v, w], 1)), k=k),
    "split": lambda v, w, t, k: geometry.split(from_tangent0(v), [1, 3], k=k),
    "split_heads": lambda v, w, t, k: geometry.split_heads(from_tangent0(v), 2, k=k),
    "from_space": lambda v, w, t, k: geometry.from_space(v, k=k),
    "from_ambient": lambda v, w, t, k: geometry.from_ambient(torch.cat([v[:, :1], v], -1), k=k),
    "from_ball": lambda v, w, t, k: geometry.from_ball(0.1 * v, k=k),
    "from_klein": lambda v, w, t, k: geometry.from_klein(0.1 * v, k=k),
    "to_space": lambda v, w, t, k: geometry.to_space(from_tangent0(v), k=k),
    "to_ambient": lambda v, w, t, k: geometry.to_ambient(from_tangent0(v), k=k),
    "to_ball": lambda v, w, t, k: geometry.to_ball(from_tangent0(v), k=k),
    "to_klein": lambda v, w, t, k: geometry.to_klein(from_tangent0(v), k=k),
}


def inputs(seed: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    v, w, t = torch.randn(5, 4, dtype=dtype), torch.randn(5, 4, dtype=dtype), torch.randn(5, dtype=dtype)
    k = torch.tensor(1.7, dtype=dtype)
    return tuple(x.requires_grad_() for x in (v, w, t, k))


@pytest.mark.parametrize("scale", [1.0, 6.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_finite_differences(name: str, scale: float) -> None:
    """Also with respect to the step, the weights and a learnable k."""
    if scale > 1 and name in ("from_ball", "from_klein"):
        scale = 1.5  # inside the ball
    torch.manual_seed(5)
    v, w, t, k = (x.detach() for x in inputs())
    arguments = [(scale * v).requires_grad_(), (scale * w).requires_grad_(), t.requires_grad_(), k.requires_grad_()]
    function = FUNCTIONS[name]
    size = max(1.0, max(float(x.detach().abs().max()) for x in flat(function(*arguments))))
    torch.autograd.gradcheck(
        lambda *x: tuple(y / size for y in flat(function(*x))), arguments, atol=2e-6, rtol=1e-4, fast_mode=False
    )


@pytest.mark.parametrize("name", ["squared_distance", "pairwise_distance", "gyroadd", "exp_map", "horoshift"])
def test_second_derivatives_agree_with_finite_differences(name: str) -> None:
    function = FUNCTIONS[name]
    torch.autograd.gradgradcheck(lambda *x: flat(function(*x)), inputs(11), atol=1e-5, rtol=1e-3, fast_mode=True)


def test_second_derivatives_of_the_centroid_raise_instead_of_being_wrong() -> None:
    v, _, t, k = inputs(11)
    mean = geometry.centroid(from_tangent0(v), t.square(), k=k)
    (gradient,) = torch.autograd.grad(mean.radius, v, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
