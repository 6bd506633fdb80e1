"""The public function: it picks an implementation."""

from __future__ import annotations

from torch import Tensor

from polarvit.kernels.norm.reference import reference_gyro_layer_norm
from polarvit.kernels.pick import fused_runs

IMPLEMENTATIONS = ("auto", "triton", "reference")
LARGEST_WIDTH = 4096
LARGEST_COUNT = 65535
"""Programs in a grid's second dimension: the widest rows have one each."""


def gyro_layer_norm(
    a: Tensor,
    u: Tensor,
    gain: Tensor,
    bias: Tensor,
    eps: float | Tensor,
    *,
    implementation: str = "auto",
    half: bool = False,
) -> tuple[Tensor, Tensor]:
    """Centre, scale and shift the tokens of each sample: bias (+) (gain/sqrt(sigma^2 + eps) (x) ((-mean) (+) x)).

    `mean` is the Lorentz centroid of the tokens and sigma^2 their mean squared distance to it. Lengths are in units of
    sqrt(k): for curvature -1/k pass a = r/sqrt(k), gain/sqrt(k), v/sqrt(k), eps/k, and multiply the radius by sqrt(k).

    Args:
        a: rescaled radii [..., N].
        u: unit directions [..., N, n].
        gain: 0-dim, positive.
        bias: a point stored as v = r u [n]; at v = 0 it receives its true gradient.
        eps: a number or a 0-dim tensor, which receives a gradient.
        implementation: `triton`, the fused kernels (float32); `reference`, plain PyTorch, for every device and dtype;
            `auto`, the kernels where they run.
        half: the directions are for a product in bfloat16, and the kernel writes them so.

    Returns:
        Rescaled radii [..., N] and directions [..., N, n].
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"gyro_layer_norm: implementation {implementation!r}, expected one of {IMPLEMENTATIONS}")
    fits = 0 < u.shape[-1] <= LARGEST_WIDTH and 0 < a.shape[-1] <= LARGEST_COUNT
    if implementation != "triton" and not (implementation == "auto" and fits and fused_runs(a, u, gain, bias)):
        return reference_gyro_layer_norm(a, u, gain, bias, eps)
    from polarvit.kernels.norm.operator import norm_forward

    count, width = u.shape[-2:]
    radius, direction, *_ = norm_forward(
        a.reshape(-1, count).contiguous(),
        u.reshape(-1, count, width).contiguous(),
        gain,
        bias.contiguous(),
        eps if isinstance(eps, Tensor) else None,
        0.0 if isinstance(eps, Tensor) else float(eps),
        half,
    )
    return radius.view(a.shape), direction.view(u.shape)
