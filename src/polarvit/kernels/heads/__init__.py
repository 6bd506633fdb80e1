"""What stands between the products of polar attention: heads split, gained and placed, and joined again."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from polarvit.geometry import PolarPoint
from polarvit.kernels.heads.reference import reference_merge_heads, reference_project_heads
from polarvit.kernels.pick import full, fused_runs

LARGEST_DIM = 1024


def project_heads(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor | None = None,
    place: Tensor | None = None,
    mode: str = "none",
) -> list[PolarPoint]:
    """Query, key and value heads [B, H, N] of rescaled radius, from one matrix product.

    `product` [3 D + extra, B N], float32 or bfloat16, is [W_q; W_k; W_v] u^T, features first, with phi_q . u,
    phi_k . u, phi_v . u in the next three rows; `a` [B, N]; `weight` [3, D] the time columns; `scalars` [3, 3] beta,
    lambda, phi_0 of each; `log_gain` [3, H]; `rate` [H, 2] and `place` [N, 2] = m/M of the horospherical shift of q
    and k, `mode` none, separate or joint.
    """
    if not heads_fused(weight.shape[1], a, weight, products=(product,)):
        return reference_project_heads(full(product), a, weight, scalars, log_gain, rate, place, mode)
    from polarvit.kernels.heads.operator import MODES, project_op

    outputs = project_op(
        product.contiguous(),
        a.contiguous(),
        weight.contiguous(),
        scalars.contiguous(),
        log_gain.contiguous(),
        (log_gain if rate is None else rate).contiguous(),
        (a if place is None else place).contiguous(),
        MODES[mode],
    )
    return [PolarPoint(outputs[i], outputs[i + 1].mT) for i in (0, 2, 4)]


def heads_fused(dim: int, *tensors: Tensor, products: Sequence[Tensor] = ()) -> bool:
    """Whether the kernels take tokens of this dimension from such tensors.

    Sizes are asked last: where no kernel runs, the question would bound the batch of an exported program.
    """
    runs = dim <= LARGEST_DIM and fused_runs(*tensors, products=products)
    return runs and all(x.numel() < 2**31 for x in (*tensors, *products))


def merge_heads(heads: PolarPoint, *, half: bool = False) -> PolarPoint:
    """Join heads [B, H, N] of rescaled radius into tokens [B, N] by direct concatenation.

    The kernel leaves the tokens' directions features first in memory, as the product after it likes them, and in
    bfloat16 if that is what it takes (`half`).
    """
    if not heads_fused(heads.shape[1] * heads.dim, *heads):
        return reference_merge_heads(heads)
    from polarvit.kernels.heads.operator import merge_op

    radius, features = merge_op(heads.radius.contiguous(), heads.direction.mT.contiguous(), half)
    return PolarPoint(radius, features.mT.unflatten(0, radius.shape))


__all__ = ["merge_heads", "project_heads", "reference_merge_heads", "reference_project_heads"]
