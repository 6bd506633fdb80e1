"""The public function: it checks its arguments and picks an implementation."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint
from polarvit.kernels.attention.reference import reference_attention

HAS_TRITON = importlib.util.find_spec("triton") is not None  # looked up once: compilers cannot trace the import system
IMPLEMENTATIONS = ("auto", "triton", "reference")
FUSED_DTYPES = (torch.float32, torch.bfloat16)
LARGEST_WIDTH = 128


def polar_attention(
    query: PolarPoint,
    key: PolarPoint,
    value: PolarPoint,
    scale: float | Tensor,
    *,
    k: float | Tensor = 1.0,
    mask: Tensor | None = None,
    implementation: str = "auto",
    deterministic: bool = False,
) -> PolarPoint:
    """Attention by distance: the polar centroid of the values with weights softmax_j(-scale d(q_i, k_j)^2).

    Args:
        query: points [B, H, N] with directions [B, H, N, d].
        key: points [B, H, M] with directions [B, H, M, d].
        value: points [B, H, M] with directions [B, H, M, e]; e may differ from d.
        scale: a number, or a tensor [H] with one for each head; it receives a gradient.
        k: the space has curvature -1/k; a number or a 0-dim tensor, which receives a gradient.
        mask: bool [B, M], True = attend. A row that may attend to nothing gives the origin with direction e_0
            and zero gradient.
        implementation: `triton`, the fused kernel, which never stores an N x M matrix (float32 inside; float32 or
            bfloat16 points; d, e <= 128); `reference`, plain PyTorch, for every device and dtype; `auto`, the
            kernel where it can run on a GPU. Where `auto` takes the reference it says so once: in a warning for
            points on a GPU, in the log `polarvit` for others.
        deterministic: ask for bitwise repeatable gradients. Neither implementation here uses atomics, so both
            always are.

    Returns:
        Points [B, H, N] with directions [B, H, N, e], in the dtype of the values.
    """
    check(query, key, value, scale, mask, implementation)
    del deterministic
    if implementation == "reference":
        return reference_attention(query, key, value, scale, k=k, mask=mask)
    obstacle, on_gpu = why_not_triton(query, key, value), query.radius.is_cuda
    if obstacle is None and (on_gpu or implementation == "triton"):
        return fused_attention(query, key, value, scale, k, mask)
    if implementation == "triton":
        raise RuntimeError(f"polar_attention: implementation 'triton' cannot run here: {obstacle}")
    say_once(obstacle or "the kernel would be interpreted", on_gpu)
    return reference_attention(query, key, value, scale, k=k, mask=mask)


def fused_attention(
    query: PolarPoint, key: PolarPoint, value: PolarPoint, scale: float | Tensor, k: float | Tensor, mask: Tensor | None
) -> PolarPoint:
    """Take curvature out (a = r/sqrt(k), d^2 = k D^2), call the operator and put it back."""
    from polarvit.kernels.attention.operator import attention_forward

    heads, device = query.shape[1], query.radius.device
    if isinstance(scale, Tensor):
        factor = scale.to(device, torch.float32).expand(heads)
    else:
        factor = torch.full((heads,), float(scale), dtype=torch.float32, device=device)
    flat = not isinstance(k, Tensor) and k == 1.0
    root = k.to(device).sqrt() if isinstance(k, Tensor) else k**0.5
    points = []
    for point in (query, key, value):
        points.append((point.radius if flat else point.radius.float() / root).contiguous())
        points.append(point.direction.mT.contiguous())  # no copy where the producer already stores dimension first
    if mask is not None:
        mask = mask.contiguous()
    radius, direction, _ = attention_forward(*points, (factor if flat else factor * k).contiguous(), mask)
    return PolarPoint(radius if flat else radius * root, direction.mT).map(lambda x: x.to(value.radius.dtype))


def why_not_triton(query: PolarPoint, key: PolarPoint, value: PolarPoint) -> str | None:
    """None where the kernel can run, else the reason."""
    if not HAS_TRITON:
        return "Triton is not installed (pip install polarvit[triton])"
    if not query.radius.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the points are on {query.radius.device}, expected cuda (or TRITON_INTERPRET=1 to interpret it)"
    for x in (*query, *key, *value):
        if x.dtype not in FUSED_DTYPES:
            return f"dtype {x.dtype}, expected float32 or bfloat16"
    for name, point in (("head dimension", key), ("value head dimension", value)):
        if point.dim > LARGEST_WIDTH:
            return f"{name} {point.dim}, expected at most {LARGEST_WIDTH}"
    return None


_said: set[str] = set()


@torch.compiler.assume_constant_result  # so that a compiler calls it while it traces, and does not trace it
def say_once(obstacle: str, on_gpu: bool) -> None:
    if obstacle not in _said:
        _said.add(obstacle)
        told = f"polar_attention runs its plain PyTorch reference: {obstacle}"
        if on_gpu:
            warnings.warn(told, stacklevel=3)
        else:
            logging.getLogger("polarvit").info(told)


def check(
    query: PolarPoint,
    key: PolarPoint,
    value: PolarPoint,
    scale: float | Tensor,
    mask: Tensor | None,
    implementation: str,
) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"polar_attention: implementation {implementation!r}, expected one of {IMPLEMENTATIONS}")
    for name, point in (("query", query), ("key", key), ("value", value)):
        if not isinstance(point, PolarPoint):
            raise TypeError(f"polar_attention: {name} is a {type(point).__name__}, expected a PolarPoint")
        if point.radius.ndim != 3 or point.direction.shape[:-1] != point.radius.shape:
            raise ValueError(
                f"polar_attention: {name} has radius {list(point.radius.shape)} and direction "
                f"{list(point.direction.shape)}, expected [B, H, N] and [B, H, N, d]"
            )
        if point.shape[:2] != query.shape[:2]:
            raise ValueError(
                f"polar_attention: {name} has batch and heads {list(point.shape[:2])}, "
                f"expected {list(query.shape[:2])} as in query"
            )
    if key.dim != query.dim:
        raise ValueError(f"polar_attention: key has head dimension {key.dim}, expected {query.dim} as in query")
    if value.shape != key.shape:
        raise ValueError(f"polar_attention: value has points {list(value.shape)}, expected {list(key.shape)} as in key")
    if 0 in (*query.direction.shape, *key.direction.shape, *value.direction.shape):
        raise ValueError(
            f"polar_attention: query {list(query.direction.shape)}, key {list(key.direction.shape)} and value "
            f"{list(value.direction.shape)} must not be empty"
        )
    heads = query.shape[1]
    if isinstance(scale, Tensor) and scale.shape not in ((), (1,), (heads,)):
        raise ValueError(f"polar_attention: scale has shape {list(scale.shape)}, expected a number or [{heads}]")
    if mask is not None:
        expected = (key.shape[0], key.shape[2])
        if mask.dtype != torch.bool or mask.shape != expected:
            raise ValueError(
                f"polar_attention: mask is {mask.dtype} {list(mask.shape)}, expected torch.bool {list(expected)}"
            )
