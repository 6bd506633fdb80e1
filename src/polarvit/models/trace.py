"""Seeing inside a model: where its tokens are and what they attend to, as plain tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from polarvit.nn import PolarAttention

if TYPE_CHECKING:
    from polarvit.models.base import VisionModel


@dataclass(frozen=True)
class Trace:
    """One forward pass in evaluation mode, without gradient. L = depth + 1: the embedding, then every block.

    For a Euclidean model `radius` is the norm of a token and `direction` its unit vector.
    """

    radius: Tensor
    """[L, B, N]"""
    direction: Tensor
    """[L, B, N, dim]"""
    attention: Tensor
    """[depth, B, H, N, N]: rows are queries and sum to one."""
    pooled: Tensor
    """[B, dim]: the pooled features; of a polar model, the pooled point in the tangent space at the origin."""
    logits: Tensor
    """[B, classes]"""

    @property
    def mean(self) -> Tensor:
        """Mean radius [L]."""
        return self.radius.mean((1, 2))

    @property
    def std(self) -> Tensor:
        """Standard deviation of the radius [L]."""
        return self.radius.std((1, 2), correction=0)

    @property
    def minimum(self) -> Tensor:
        """Smallest radius [L]."""
        return self.radius.amin((1, 2))

    @property
    def maximum(self) -> Tensor:
        """Largest radius [L]."""
        return self.radius.amax((1, 2))


@torch.no_grad()
def trace(model: VisionModel, images: Tensor) -> Trace:
    """Run `images` [B, C, H, W] once and keep what every block did."""
    maps: list[Tensor] = []

    def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, PolarAttention):
            query, key, _ = module.project(*args, k=kwargs["k"])
            maps.append(module.weights(query, key, k=kwargs["k"]))
        else:
            maps.append(module.attention_map(*args))  # type: ignore[operator]

    kinds = [m for m in model.modules() if isinstance(m, PolarAttention) or hasattr(m, "attention_map")]
    hooks = [m.register_forward_pre_hook(see, with_kwargs=True) for m in kinds]
    try:
        with model.observed():
            stream = list(model.tokens(images))
            features = model._normed(stream[-1])
            pooled, logits = model.forward_head(features, pre_logits=True), model.forward_head(features)
    finally:
        for hook in hooks:
            hook.remove()
    points = [model.as_points(x) for x in stream]
    return Trace(
        radius=torch.stack([p.radius for p in points]),
        direction=torch.stack([p.direction for p in points]),
        attention=torch.stack(maps),
        pooled=pooled,
        logits=logits,
    )
