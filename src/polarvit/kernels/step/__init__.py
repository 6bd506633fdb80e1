"""A polar layer whose point is the step of a residual: epilogue and boost residual in one pass, the step unwritten."""

from __future__ import annotations

from torch import Tensor

from polarvit.kernels.linear import linear_epilogue
from polarvit.kernels.pick import fused_runs
from polarvit.kernels.residual import boost_residual
from polarvit.kernels.residual.function import LARGEST_COUNT, LARGEST_WIDTH


def step_residual(
    a: Tensor,
    u: Tensor,
    product: Tensor,
    c: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    size: Tensor,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Tokens (a, u) moved by the step that a polar layer without activation makes of its matrix product.

    The same as `boost_residual(a, u, *linear_epilogue(product, c, ...), size, kept)`, which runs where the kernel does
    not. The kernel neither writes the step's directions nor keeps them for backward: one tensor of the size of u less.

    Args:
        a: rescaled radii of the tokens [..., N].
        u: their directions [..., N, n].
        product: [..., N, n + extra], float32 or bfloat16, as `linear_epilogue` takes it.
        c: rescaled radii of what the layer was given [..., N].
        time_weight, beta, slope, phi0: the layer's, as in `linear_epilogue`.
        size, kept: factors of the steps, as in `boost_residual`.

    Returns:
        Rescaled radii [..., N] and directions [..., N, n].
    """
    count, width = (a.shape[-1] if a.ndim else 0), u.shape[-1]
    fits = a.ndim > 1 and a.shape == c.shape and 0 < width <= LARGEST_WIDTH and 0 < count <= LARGEST_COUNT
    if not (fits and fused_runs(a, u, c, time_weight, size, products=(product,))):
        b, v = linear_epilogue(product, c, time_weight, beta, slope, phi0, out_features=width)
        return boost_residual(a, u, b, v, size, kept)
    from polarvit.kernels.step.operator import step_forward

    radius, direction, *_ = step_forward(
        a.reshape(-1, count).contiguous(),
        u.reshape(-1, count, width).contiguous(),
        product.reshape(-1, count, product.shape[-1]).contiguous(),
        c.reshape(-1, count).contiguous(),
        time_weight.contiguous(),
        beta,
        slope,
        phi0,
        size,
        None if kept is None else kept.expand(*a.shape[:-1], 1).reshape(-1).contiguous(),
    )
    return radius.view(a.shape), direction.view(u.shape)


__all__ = ["step_residual"]
