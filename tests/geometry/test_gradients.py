"""Gradients: against finite differences, at the origin, at coinciding points, in float32, and what backward keeps."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import pytest
import torch
import torch.utils.checkpoint
from oracle import Exact
from samples import pair
from torch import Tensor

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent, from_tangent0, to_tangent0
from polarvit.geometry.scaled import scaled_asinh

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
    with pytest.raises(RuntimeError, match="differentiable once"):
        gradient.sum().backward()


def test_second_derivatives_of_the_centroid_by_any_leaf_raise() -> None:
    """Also by weights that the incoming gradient knows nothing of, and by a factor of the loss."""
    a, u, w = torch.rand(5) + 1, torch.nn.functional.normalize(torch.randn(5, 3), dim=-1), torch.rand(5)
    a, w, factor = a.requires_grad_(), w.requires_grad_(), torch.tensor(2.0, requires_grad=True)
    loss = factor * geometry.centroid(PolarPoint(a, u), w).radius
    (to_a,) = torch.autograd.grad(loss, a, create_graph=True)
    for leaf in (a, w, factor):
        with pytest.raises(RuntimeError, match="differentiable once"):
            torch.autograd.grad(to_a.sum() + 0 * w.sum() + 0 * factor, leaf, retain_graph=True)


def test_first_derivatives_with_a_graph_pass_through_checkpointing() -> None:
    v, _, t, k = inputs(11)

    def radius(v: Tensor) -> Tensor:
        return geometry.centroid(from_tangent0(v), t.square(), k=k).radius

    (plain,) = torch.autograd.grad(radius(v), v)
    checkpointed = torch.utils.checkpoint.checkpoint(radius, v, use_reentrant=False)
    (found,) = torch.autograd.grad(checkpointed, v, create_graph=True)
    torch.testing.assert_close(found.detach(), plain)


# At the origin the loss does not see the stored direction; the gradient in v = r u is the ordinary one.


def at_origin(loss: Callable[[PolarPoint], Tensor], n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    v = torch.zeros(n, dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(from_tangent0(v)), v)
    return gradient


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_gradient_of_the_squared_distance_from_the_origin_is_twice_the_vector_back(
    k: float, dtype: torch.dtype
) -> None:
    q = from_tangent0(torch.tensor([0.3, -1.2, 0.5], dtype=dtype))
    gradient = at_origin(lambda p: geometry.squared_distance(p, q, k=k), 3, dtype)
    torch.testing.assert_close(gradient, -2 * q.radius * q.direction)


ORIGIN_LOSSES: dict[str, Callable[[PolarPoint, PolarPoint], Tensor]] = {
    "squared_distance": lambda p, q: geometry.squared_distance(p, q),
    "pairwise_distance": lambda p, q: geometry.pairwise_distance(*(x.map(lambda y: y[None]) for x in (p, q))).sum(),
    "gyroadd-left": lambda p, q: to_tangent0(geometry.gyroadd(p, q)),
    "gyroadd-right": lambda p, q: to_tangent0(geometry.gyroadd(q, p)),
    "gyroadd-itself": lambda p, q: to_tangent0(geometry.gyroadd(p, p)),
    "exp_map": lambda p, q: to_tangent0(geometry.exp_map(q, PolarTangent(p.radius * p.direction[0], 0 * q.direction))),
    "log_map": lambda p, q: ambient_tangent(q, geometry.log_map(q, p), 1.0),
    "centroid": lambda p, q: to_tangent0(
        geometry.centroid(PolarPoint(*(torch.stack(x) for x in zip(p, q, strict=True))))
    ),
    "horoshift": lambda p, q: to_tangent0(geometry.horoshift(p, 0.7)),
    "boost": lambda p, q: to_tangent0(geometry.boost(p, 0.7)),
    "rotate": lambda p, q: to_tangent0(geometry.rotate(p, 0.7)),
    "busemann": lambda p, q: geometry.busemann(p),
    "gyroscale": lambda p, q: to_tangent0(geometry.gyroscale(p, -0.7)),
    "concat": lambda p, q: to_tangent0(geometry.concat([q, p])),
    "concat-origins": lambda p, q: to_tangent0(geometry.concat([p, p])),
    "split": lambda p, q: torch.cat([to_tangent0(x) for x in geometry.split(p, [1, 2])]),
    "to_space": lambda p, q: geometry.to_space(p),
    "to_ball": lambda p, q: geometry.to_ball(p),
    "to_klein": lambda p, q: geometry.to_klein(p),
    "to_ambient": lambda p, q: geometry.to_ambient(p)[1:],
}


@pytest.mark.parametrize("name", ORIGIN_LOSSES)
def test_the_true_gradient_arrives_at_the_origin(name: str) -> None:
    """Against central differences in v, every component of which is lost if the origin is a special case."""
    q = from_tangent0(torch.tensor([0.3, -1.2, 0.5], dtype=torch.float64))
    weights = torch.tensor([0.4, -0.9, 0.7, 0.2, 0.5, -0.3], dtype=torch.float64)

    def loss(p: PolarPoint) -> Tensor:
        out = ORIGIN_LOSSES[name](p, q).reshape(-1)
        return (out * weights[: out.numel()]).sum()

    step = 1e-5 * torch.eye(3, dtype=torch.float64)
    numerical = torch.stack([(loss(from_tangent0(e)) - loss(from_tangent0(-e))) / 2e-5 for e in step])
    torch.testing.assert_close(at_origin(loss, 3), numerical, atol=1e-8, rtol=1e-7)


def test_a_parameter_that_starts_at_the_origin_trains() -> None:
    target = from_tangent0(torch.tensor([[0.8, -0.6, 0.4]]))
    v = torch.zeros(1, 3, requires_grad=True)
    optimizer = torch.optim.SGD([v], lr=0.2)
    for _ in range(40):
        optimizer.zero_grad()
        geometry.squared_distance(from_tangent0(v), target).sum().backward()
        optimizer.step()
    assert float(geometry.distance(from_tangent0(v), target).detach()) < 1e-3


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("from_ball", "from_klein")])
@pytest.mark.parametrize("radius", [0.0, 1.0, 30.0])
def test_gradients_are_finite_where_points_coincide(name: str, radius: float) -> None:
    """Distance has no gradient there and gets 0; everything else has one."""
    u = torch.tensor([0.5, -0.5, 0.5, 0.5])
    v = (radius * u).expand(5, 4).clone().requires_grad_()
    arguments = (v, v, torch.zeros(5, requires_grad=True), torch.tensor(1.7, requires_grad=True))
    sum(x.sum() for x in flat(FUNCTIONS[name](*arguments))).backward()
    for x in arguments:
        assert x.grad is None or x.grad.isfinite().all(), x.grad


COORDINATES = ("from_ball", "from_klein", "to_space", "to_ambient")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in COORDINATES])
@pytest.mark.parametrize("radius", [45.0, 100.0, 1000.0])
def test_gradients_are_finite_far_out(name: str, radius: float) -> None:
    """Coinciding points, one ray, opposite rays and others, past every exponent that float32 holds."""
    u = torch.nn.functional.normalize(
        torch.tensor([[0.5, -0.5, 0.5, 0.5]] * 2 + [[1.0, 0, 0, 0]] * 2 + [[0.1, 2, 3, 4]])
    )
    factor = torch.tensor([1.0, 1.1, -1.0, 0.9, 1.0])
    v, w = (radius * u).requires_grad_(), (radius * factor[:, None] * u.roll(1, 0)).requires_grad_()
    arguments = (v, w, torch.linspace(-1, 1, 5).requires_grad_(), torch.tensor(1.7, requires_grad=True))
    out = flat(FUNCTIONS[name](*arguments))
    assert all(x.isfinite().all() for x in out)
    sum(x.sum() for x in out).backward()
    for x in arguments:
        assert x.grad is None or x.grad.isfinite().all(), x.grad


def test_gradient_of_the_distance_is_zero_where_points_coincide() -> None:
    p, _ = pair("far", 8, 3, 2.0, 1.0, torch.float64, 5)
    radius, direction = (x.clone().requires_grad_() for x in p)
    other = p.map(torch.clone)
    for function in (geometry.distance, geometry.squared_distance):
        gradients = torch.autograd.grad(function(PolarPoint(radius, direction), other).sum(), (radius, direction))
        assert all((x == 0).all() for x in gradients)


@pytest.mark.parametrize("radius", [0.0, 2.0, 12.0, 200.0])
@pytest.mark.parametrize("kind", ["one-hot", "all-zero", "opposite", "equal"])
def test_gradients_of_the_centroid_are_finite(kind: str, radius: float) -> None:
    p, _ = pair("far", 4, 3, radius, 1.0, torch.float32, 9)
    if kind == "opposite":
        p = PolarPoint(p.radius, torch.stack([p.direction[0], -p.direction[0], p.direction[1], -p.direction[1]]))
    if kind == "equal":
        p = PolarPoint(p.radius, p.direction[:1].expand(4, 3))
    w = torch.tensor({"one-hot": [0.0, 1.0, 0, 0], "all-zero": [0.0] * 4}.get(kind, [1.0] * 4))
    leaves = [x.clone().requires_grad_() for x in (*p, w)]
    mean = geometry.centroid(PolarPoint(*leaves[:2]), leaves[2])
    (mean.radius + (mean.direction * torch.tensor([0.3, -0.4, 0.5])).sum()).backward()
    assert all(x.grad.isfinite().all() for x in leaves), [x.grad for x in leaves]
    if kind == "all-zero":
        assert float(mean.radius) == 0
        assert all((x.grad == 0).all() for x in leaves)


@pytest.mark.parametrize("radius", [0.5, 4.0, 12.0])
@pytest.mark.parametrize("exponent", [-120, 120])
def test_gradients_of_the_centroid_do_not_depend_on_the_unit_of_weights(radius: float, exponent: int) -> None:
    """A power of two changes no digit of a float: the gradients of points stay, those of weights are divided by it."""
    p, _ = pair("far", 5, 3, radius, 1.0, torch.float32, 9)

    def gradients(unit: float) -> tuple[Tensor, ...]:
        leaves = [*(x.clone() for x in p), unit * torch.tensor([0.5, 1.0, 0.25, 0.0, 2.0])]
        mean = geometry.centroid(PolarPoint(*(x.requires_grad_() for x in leaves[:2])), leaves[2].requires_grad_())
        return torch.autograd.grad((to_tangent0(mean) * torch.tensor([0.3, -0.4, 0.5])).sum(), leaves)

    unit = 2.0**exponent
    for one, two, by in zip(gradients(1.0), gradients(unit), (1, 1, unit), strict=True):
        torch.testing.assert_close(two * by, one, rtol=3e-5, atol=3e-6 * float(one.abs().max()))


def many_centroids(a: Tensor, u: Tensor, w: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Radii of the rows of `w`, and the gradients of a random loss; those of directions across them."""
    leaves = [x.to(dtype, copy=True).requires_grad_() for x in (a, u, w)]
    mean = geometry.centroid(PolarPoint(leaves[0], leaves[1]), leaves[2])
    generator = torch.Generator().manual_seed(7)
    up, across = (torch.randn(x.shape, generator=generator).to(dtype) for x in mean)
    to_a, to_u, to_w = torch.autograd.grad((mean.radius * up).sum() + (mean.direction * across).sum(), leaves)
    return [mean.radius.detach(), to_a, to_u - (to_u * leaves[1]).sum(-1, keepdim=True).detach() * u.to(dtype), to_w]


@pytest.mark.parametrize("radius", [1.0, 4.0, 6.0, 7.0, 8.0, 12.0, 14.0])
def test_rows_that_one_key_outweighs_have_gradients_far_out(radius: float) -> None:
    """Sixteen rows of attention, each nearly on a key of its own: 1e-3 to 1e-9 of the weight is left to the others.

    The mean differs from that key's direction by less than a float of it resolves, and the gradient is e^(2 a_mu) times
    the difference.
    """
    generator = torch.Generator().manual_seed(5)
    u = torch.nn.functional.normalize(torch.randn(16, 12, generator=generator), dim=-1)
    a = radius + torch.rand(16, generator=generator)
    w = torch.rand(16, 16, generator=generator) * torch.logspace(-4, -10, 16)[:, None]
    w[torch.arange(16), torch.randperm(16, generator=generator)] = 1.0
    for one, two in zip(many_centroids(a, u, w, torch.float32), many_centroids(a, u, w, torch.float64), strict=True):
        assert float((one - two).norm() / two.norm()) < 3e-6


@pytest.mark.parametrize("radius", [4.0, 8.0, 12.0, 16.0])
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
def test_rows_in_two_clusters_are_as_good_as_each_alone(radius: float, spread: float) -> None:
    """Of two clusters of neighbours, far from each other, each row has one: no cluster is seen from the other."""
    generator = torch.Generator().manual_seed(5)
    poles = torch.randn(2, 1, 6, generator=generator)
    u = torch.nn.functional.normalize(poles + spread * torch.randn(2, 8, 6, generator=generator), dim=-1).view(16, 6)
    a, w = radius + torch.rand(16, generator=generator), torch.zeros(2, 16)
    w[0, :8], w[1, 8:] = torch.rand(2, 8, generator=generator)
    for one, two in zip(many_centroids(a, u, w, torch.float32), many_centroids(a, u, w, torch.float64), strict=True):
        assert float((one - two).norm() / two.norm()) < 3e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("radius", [2.0, 6.0, 7.9, 12.0, 16.0, 17.9])
def test_turning_the_only_point_of_a_row_leaves_its_radius(radius: float, dtype: torch.dtype) -> None:
    u = torch.nn.functional.normalize(torch.randn(8, 5, generator=torch.Generator().manual_seed(5)), dim=-1).to(dtype)
    u.requires_grad_()
    mean = geometry.centroid(PolarPoint(torch.full((8,), radius, dtype=dtype), u), torch.eye(8, dtype=dtype))
    (to_u,) = torch.autograd.grad(mean.radius.sum(), u)
    assert float((to_u - (to_u * u).sum(-1, keepdim=True) * u).abs().max()) < 1e-6


@pytest.mark.parametrize("radius", [12.0, 30.0, 40.0, 80.0, 200.0])
def test_points_of_one_direction_move_their_centroid_along_it_at_every_radius(radius: float) -> None:
    """On one ray a_mu is that of a segment: e^(2 a_mu) = sum w e^a / sum w e^-a, nothing turns."""
    u = torch.nn.functional.normalize(torch.tensor([0.3, -0.7, 0.2, 0.6]), dim=0).expand(3, 4)
    leaves = [radius - torch.tensor([0.0, 1.0, 3.0]), u.clone(), torch.tensor([0.2, 0.5, 0.3])]
    a, _, w = (x.double().requires_grad_() for x in leaves)
    wanted = torch.autograd.grad(0.5 * (torch.logsumexp(a + w.log(), 0) - torch.logsumexp(w.log() - a, 0)), (a, w))
    mean = geometry.centroid(PolarPoint(*(x.requires_grad_() for x in leaves[:2])), leaves[2].requires_grad_())
    to_a, to_u, to_w = torch.autograd.grad(mean.radius, leaves)
    torch.testing.assert_close(to_a.double(), wanted[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(to_w.double(), wanted[1], rtol=1e-4, atol=1e-5)
    assert float((to_u - (to_u * u).sum(-1, keepdim=True) * u).abs().max()) < 1e-5


@pytest.mark.parametrize("scale", [1e-3, 1.0, 4.0])
def test_weights_of_zero_receive_their_gradient_even_from_farther_keys(scale: float) -> None:
    """One-hot on the nearest of three keys; a one-sided difference is all that a weight of zero allows."""
    radius = scale * torch.tensor([1.0, 2.0, 1.5], dtype=torch.float64)
    direction = torch.nn.functional.normalize(torch.tensor([[1.0, 2.0], [0.3, -1.0], [-1.0, 0.4]]).double(), dim=-1)
    p, cotangent = PolarPoint(radius, direction), torch.tensor([0.7, -0.4], dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        return (to_tangent0(geometry.centroid(p, w)) * cotangent).sum()

    w = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(w), w)
    step = 1e-8 * torch.eye(3, dtype=torch.float64)
    numerical = torch.stack([(loss(w.detach() + e) - loss(w.detach())) / 1e-8 for e in step])
    torch.testing.assert_close(gradient, numerical, rtol=2e-3, atol=1e-6)


def test_asinh_with_its_scale_apart_has_finite_gradients_at_zero() -> None:
    x = torch.tensor([0.0, 0.0, 1e-30, 0.7, 0.7], requires_grad=True)
    s = torch.tensor([0.0, 200.0, 100.0, 3.0, 300.0], requires_grad=True)
    y = scaled_asinh(x, s)
    small, large = math.asinh(math.exp(3) * 0.7), 300 + math.log(2 * 0.7)
    torch.testing.assert_close(y, torch.tensor([0.0, 0.0, 100 + math.log(2e-30), small, large]))
    y.sum().backward()
    assert x.grad is not None
    assert s.grad is not None
    assert x.grad.isfinite().all()
    torch.testing.assert_close(s.grad, torch.tensor([0.0, 0.0, 1.0, math.tanh(small), 1.0]))
    double = [z.detach()[[0, 2, 3]].double().requires_grad_() for z in (x + 0.1, s.clamp_max(50))]
    torch.autograd.gradcheck(scaled_asinh, double)


def kept_for_backward(compute: Callable[[], object]) -> list[Tensor]:
    """Distinct tensors that autograd keeps."""
    found: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        found[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        compute()
    return list(found.values())


@pytest.mark.parametrize("k", ["float", "learnable"])
@pytest.mark.parametrize("name", ["pairwise_distance", "centroid"])
def test_backward_keeps_at_most_two_tensors_of_all_pairs(name: str, k: str) -> None:
    batch, rows, keys, n = 2, 31, 29, 13
    p, q = (from_tangent0(torch.randn(batch, count, n, requires_grad=True)) for count in (rows, keys))
    weights = torch.rand(batch, rows, keys, requires_grad=True)
    curvature = torch.tensor(1.7, requires_grad=True) if k == "learnable" else 1.7
    if name == "pairwise_distance":
        kept = kept_for_backward(lambda: geometry.pairwise_distance(p, q, k=curvature))
    else:
        kept = kept_for_backward(lambda: geometry.centroid(q, weights, k=curvature))
    pairs = batch * rows * keys
    assert sum(x.numel() == pairs for x in kept) <= 2
    assert max(x.numel() for x in kept) <= pairs


# Precision of float32 gradients: against float64 at the same stored inputs. The yardstick is how much the float64
# gradient moves when the inputs are perturbed by their rounding, plus the rounding of the gradient itself.

EPS = torch.finfo(torch.float32).eps / 2


def gradients_at(name: str, v: Tensor, w: Tensor, t: Tensor, k: float) -> list[Tensor]:
    """Gradients [points, ...] of a fixed random combination of the outputs; sets of five where points meet."""
    leaves = [x.clone().requires_grad_() for x in (v, w, t)]
    if name.startswith(("centroid", "pairwise")):
        groups = zip(*(x.split(5) for x in leaves), strict=True)
    else:
        groups = iter([tuple(leaves)])
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=v.dtype)
    for group in groups:
        for x in flat(FUNCTIONS[name](*group, k)):
            loss = loss + (x * torch.randn(x.shape, generator=generator).to(v.dtype)).sum()
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [x.double().reshape(len(v), -1) for x in found if x is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_in_float32_are_as_good_as_their_inputs(name: str) -> None:
    """Median within 2x at every radius, 90 % within 6x (plus 2 r where the result turns with a radius).

    The yardstick is a maximum over a few random perturbations, too small by chance for some samples, so the far tail is
    that of a ratio of small numbers. In gyroaddition, exp, log and the joint shift the loss below weighs the direction
    of the result with its radius z, and a radius of the input turns that direction only by what is left of the chain
    rule's sum of terms of size z: its derivative is right to a few eps z.
    """
    count = 20 if name.startswith(("centroid", "pairwise")) else 40
    turning = name in ("exp_map", "log_map", "gyroadd", "gyro_centering", "joint_horoshift")
    for radius in (1e-6, 0.3, 4.0, 16.0):
        if radius > 1 and name in ("from_ball", "from_klein"):
            continue  # outside the ball
        ratios = []
        for k in (0.5, 1.7):
            for relation in ("close", "far", "opposite"):
                p, q = pair(relation, count, 4, radius, k, torch.float32, 17)
                generator = torch.Generator().manual_seed(23)
                stored = [to_tangent0(p), to_tangent0(q), torch.randn(count, generator=generator)]
                got, want = gradients_at(name, *stored, k), gradients_at(name, *(x.double() for x in stored), k)
                moved = [torch.zeros(len(x), dtype=torch.float64) for x in want]
                for _ in range(4):
                    noise = [2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1 for x in stored]
                    other = gradients_at(name, *(x * (1 + EPS * e) for x, e in zip(stored, noise, strict=True)), k)
                    moved = [torch.maximum(m, (o - x).norm(dim=-1)) for m, o, x in zip(moved, other, want, strict=True)]
                for x, y, m in zip(got, want, moved, strict=True):
                    error, limit = (x - y).norm(dim=-1), m + EPS * y.norm(dim=-1)
                    ratios.append(torch.where(error > 0, error / limit, 0.0))
        median, tail = torch.cat(ratios).quantile(torch.tensor([0.5, 0.9], dtype=torch.float64)).tolist()
        told = f"gradient of {name} at r = {radius} (seeds 17, 23): median {median:.2f}, 90 % {tail:.2f}"
        assert median <= 2, told
        assert tail <= 6 + (2 * radius if turning else 0), told


@pytest.mark.parametrize("radius", [0.3, 4.0, 12.0])
def test_gradients_in_float64_agree_with_differences_in_eighty_digits(radius: float) -> None:
    """Distance and the radius of a gyrosum and of a centroid, along a random direction of v."""
    k, exact = 1.7, Exact(1.7)
    p, q = pair("far", 3, 4, radius, k, torch.float64, 31)
    v, w = to_tangent0(p), to_tangent0(q)
    direction = torch.tensor([0.3, -0.7, 0.2, 0.6], dtype=torch.float64)

    def exact_point(x: Tensor, step: mp.mpf) -> list:
        moved = [mp.mpf(float(a)) + step * mp.mpf(float(b)) for a, b in zip(x, direction, strict=True)]
        norm = mp.sqrt(mp.fdot(moved, moved))
        a = norm / exact.s
        return [exact.s * mp.cosh(a)] + [exact.s * mp.sinh(a) * value / norm for value in moved]

    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)

    def pair_of(x: PolarPoint, y: PolarPoint) -> PolarPoint:
        return PolarPoint(torch.stack([x.radius, y.radius]), torch.stack([x.direction, y.direction]))

    losses: dict[str, tuple[Callable, Callable]] = {
        "distance": (lambda x, y: geometry.distance(x, y, k=k), exact.distance),
        "gyroadd": (
            lambda x, y: geometry.gyroadd(x, y, k=k).radius,
            lambda x, y: exact.radius(exact.gyroadd(x, y)),
        ),
        "centroid": (
            lambda x, y: geometry.centroid(pair_of(x, y), weights, k=k).radius,
            lambda x, y: exact.radius(exact.centroid([x, y], [mp.mpf(float(c)) for c in weights])),
        ),
    }
    h = mp.mpf(10) ** -25
    for i in range(3):
        fixed = exact.point(q.radius[i], q.direction[i])
        for name, (ours, truth) in losses.items():
            leaf = v[i].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(ours(from_tangent0(leaf), from_tangent0(w[i])), leaf)
            want = (truth(exact_point(v[i], h), fixed) - truth(exact_point(v[i], -h), fixed)) / (2 * h)
            got = float((gradient * direction).sum())
            limit = 1e-12 * (1 + radius) * max(1.0, float(gradient.norm()))
            assert abs(got - float(want)) <= limit, f"{name} of pair {i}: {got} instead of {want}"
