"""The polar linear layer after its matrix product: activation, direction and radius in one pass over each row."""

from __future__ import annotations

from torch import Tensor

from polarvit.kernels.linear.reference import radius_of_log_sinh, reference_linear_epilogue
from polarvit.kernels.pick import full, fused_runs

LARGEST_WIDTH = 4096


def linear_epilogue(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    *,
    out_features: int,
    activation: str | None = None,
    root_k: float | Tensor = 1.0,
    half: bool = False,
) -> tuple[Tensor, Tensor]:
    """Rescaled radius [...] and direction [..., out] of a polar layer's output.

    `product` [..., out + extra], float32 or bfloat16, is u W_s^T with phi . u in column `out` (columns beyond are
    padding); `a` [...] the rescaled input radius. With chi = tanh(a):

        y = w_0 + chi product,   direction of phi(sqrt(k) cosh(a) y),
        l = beta ln|h| + slope a + chi (phi . u) + phi_0,   a' = asinh(e^l)

    `half`: the direction is for a product in bfloat16, and the kernel writes it so.
    """
    narrow = not isinstance(root_k, Tensor) and out_features <= LARGEST_WIDTH
    if not (narrow and fused_runs(a, time_weight, products=(product,))):
        return reference_linear_epilogue(
            full(product),
            a,
            time_weight,
            beta,
            slope,
            phi0,
            out_features=out_features,
            activation=activation,
            root_k=root_k,
        )
    from polarvit.kernels.linear.operator import ACTIVATIONS, linear_epilogue_op

    batch = a.shape
    radius, direction, _ = linear_epilogue_op(
        product.reshape(-1, product.shape[-1]).contiguous(),
        a.reshape(-1).contiguous(),
        time_weight.contiguous(),
        beta,
        slope,
        phi0,
        ACTIVATIONS[activation],
        float(root_k),
        half,
    )
    return radius.view(batch), direction.view(*batch, out_features)


__all__ = ["linear_epilogue", "radius_of_log_sinh", "reference_linear_epilogue"]
