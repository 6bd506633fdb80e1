"""A model whose residual stream is carried out to a chosen radius, and its ambient twin.

The stream is moved by an isometry right after the embedding, x -> p (+) x with p far out, so its tokens keep their
distances to each other but lie at the radius of p, as they do when a model has drifted outward. The boost residual
keeps the mean radius, so every block works there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, ambient, gyroadd
from polarvit.models import AmbientTwin, PolarViT


def place(model: PolarViT, radius: float) -> PolarPoint:
    """The point at `radius` along the diagonal, in the model's dtype."""
    dim, dtype = model.config.dim, model.embed.proj.weight.dtype
    return PolarPoint(torch.full((), radius, dtype=dtype), torch.full((dim,), dim**-0.5, dtype=dtype))


class PushedTwin(AmbientTwin):
    def __init__(self, model: PolarViT, radius: float) -> None:
        super().__init__(model)
        self.radius = radius

    def embed(self, images: Tensor) -> Tensor:
        x = super().embed(images)
        p = place(self.model, self.radius)
        return ambient.gyroadd(ambient.from_tangent0(p.radius * p.direction, k=self.k).expand_as(x), x, k=self.k)


@torch.no_grad()
def pushed_logits(model: PolarViT, images: Tensor, radius: float) -> tuple[Tensor, float]:
    """Logits with the stream pushed out, and the mean radius of the stream after the last block."""
    hook = model.embed.register_forward_hook(lambda module, args, out: gyroadd(place(model, radius), out, k=model.k))
    try:
        seen = model.trace(images)
    finally:
        hook.remove()
    return seen.logits, seen.mean[-1].item()
