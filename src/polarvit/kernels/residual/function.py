"""The public function: it picks an implementation."""

from __future__ import annotations

from torch import Tensor

from polarvit.kernels.pick import fused_runs
from polarvit.kernels.residual.reference import reference_boost_residual

IMPLEMENTATIONS = ("auto", "triton", "reference")
LARGEST_WIDTH = 2048
LARGEST_COUNT = 8192


def boost_residual(
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    size: Tensor,
    kept: Tensor | None = None,
    *,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Tokens (a, u) moved by steps (b, v): a radial boost centred over the tokens and a sideways one.

    With b_par = b (v.u), t = v - (v.u)u and s = size kept,

        a' = a + s (b_par - mean over tokens of b_par),   u' = direction of tanh(a) u + sinh(s b |t|) t/|t|,

    and (|a'|, -u') where a' < 0: such a token passes through the origin.

    Args:
        a: rescaled radii r/sqrt(k) [..., N].
        u: unit directions [..., N, n].
        b: rescaled radii of the steps [..., N].
        v: unit directions of the steps [..., N, n].
        size: factor of the steps, 0-dim; it receives a gradient.
        kept: one more factor for each sample [..., 1], without a gradient (drop path).
        implementation: `triton`, the fused kernel (float32); `reference`, plain PyTorch, for every device and dtype;
            `auto`, the kernel where it runs.

    Returns:
        Rescaled radii [..., N] and directions [..., N, n].
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"boost_residual: implementation {implementation!r}, expected one of {IMPLEMENTATIONS}")
    fits = a.ndim > 1 and 0 < u.shape[-1] <= LARGEST_WIDTH and 0 < a.shape[-1] <= LARGEST_COUNT
    fused = implementation == "auto" and fits and a.shape == b.shape and fused_runs(a, u, b, v, size)
    if implementation != "triton" and not fused:
        return reference_boost_residual(a, u, b, v, size, kept)
    from polarvit.kernels.residual.operator import residual_forward

    count, width = u.shape[-2:]
    radius, direction, _ = residual_forward(
        a.reshape(-1, count).contiguous(),
        u.reshape(-1, count, width).contiguous(),
        b.reshape(-1, count).contiguous(),
        v.reshape(-1, count, width).contiguous(),
        size,
        None if kept is None else kept.expand(*a.shape[:-1], 1).reshape(-1).contiguous(),
    )
    return radius.view(a.shape), direction.view(u.shape)
