"""One step of Riemannian AdamW for points v = r u, as a pure function of tensors, and the same compiled.

    x  <- centroid({x, o}; 1 - lr wd, lr wd)                   decay: a closed form in the radius
    xi  = (g.u, (a/sinh a)(g - (g.u)u))                        Riemannian gradient of g = dL/dv
    m  <- b1 m + (1 - b1) xi,   s <- b2 s + (1 - b2) |xi|^2    one second moment per point
    x  <- exp_x(-lr m^/(sqrt(s^) + eps)),   m <- transported along

In PyTorch this is three hundred small operations on a few rows, each a kernel of its own on a GPU; compiled, three.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polarvit.compilation import RECOMPILATIONS, compiled
from polarvit.geometry import PolarPoint, PolarTangent, to_tangent0
from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.follow import follow
from polarvit.geometry.scaled import rescale, restore, sh
from polarvit.optim.decay import decayed_radius


def moved(
    v: Tensor,
    g: Tensor,
    moment: PolarTangent,
    square: Tensor,
    step: Tensor,
    lr: float | Tensor,
    *,
    k: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Points [N, n], moments [N, n+1] (radial first) and squares [N] after a step of points v with gradients g [N, n].

    `step` [N] counts the steps of each point from 1. Inputs stay as they are.
    """
    bias1, bias2 = (bias(beta, step, v) for beta in betas)
    radius, u = norm_and_direction(v)
    a = rescale(radius, k)
    xi = polar_gradient(a, u, g)
    if decay:  # a radial move: it leaves frame components as they are
        radius = restore(decayed_radius(a, decay_weight(lr, decay, a)), k)
    x = PolarPoint(radius, u)

    m = PolarTangent(
        torch.lerp(moment.radial, xi.radial, 1 - betas[0]),
        torch.lerp(moment.perpendicular, xi.perpendicular, 1 - betas[0]),
    )
    s = torch.lerp(square, xi.radial.square() + xi.perpendicular.square().sum(-1), 1 - betas[1])
    size = -lr / bias1 / (torch.sqrt(s / bias2) + eps)
    y, m = follow(x, PolarTangent(size * m.radial, size.unsqueeze(-1) * m.perpendicular), m, k=k)
    return to_tangent0(y), torch.cat([m.radial.unsqueeze(-1), m.perpendicular], -1), s


def bias(beta: float, step: Tensor, like: Tensor) -> Tensor | float:
    """1 - beta^step, in float64 until it is done."""
    return -torch.expm1(step.double() * math.log(beta)).to(like) if beta else 1.0


def polar_gradient(a: Tensor, u: Tensor, g: Tensor) -> PolarTangent:
    """Riemannian gradient of a loss whose gradient in v = r u is g [..., n], at rescaled radius a [...]."""
    along = (g * u).sum(-1, keepdim=True)
    ratio = torch.where(a > 0, a * torch.exp(-a) / torch.where(a > 0, sh(a), 1.0), 1.0)
    return PolarTangent(along.squeeze(-1), ratio.unsqueeze(-1) * (g - along * u))


def decay_weight(lr: float | Tensor, decay: float, like: Tensor) -> Any:
    """The weight lr wd of the origin in one step."""
    return (lr * decay).to(like) if isinstance(lr, Tensor) else lr * decay


@functools.cache
def fused() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """`moved` by `torch.compile`, once in a process."""
    return compiled(moved)


def moved_compiled(
    v: Tensor, g: Tensor, moment: PolarTangent, square: Tensor, step: Tensor, lr: float | Tensor, **options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`moved` in a few kernels. The rate goes in as a tensor: a number would be compiled in, and again when it changes.

    One compilation serves every step with the same shapes, `k`, `betas`, `eps` and `decay`; after the first step
    nothing is read back or looked up on the host, so it may be captured in a CUDA graph.
    """
    # Radial components at a stride would make the compiler loop over rows that it can hold at once.
    moment = PolarTangent(moment.radial.contiguous(), moment.perpendicular)
    lr = lr.to(v.device) if isinstance(lr, Tensor) else torch.full((), lr, dtype=v.dtype, device=v.device)
    with torch._dynamo.config.patch(recompile_limit=RECOMPILATIONS):
        return fused()(v, g, moment, square, step, lr, **options)


def worth_compiling(v: Tensor) -> bool:
    """Whether points like v are compiled without being told: in float32 on a GPU, where every operation is a launch."""
    return v.is_cuda and v.dtype == torch.float32 and importlib.util.find_spec("triton") is not None
