"""Vision transformers whose stream is one tensor: the systems Polar-ViT is compared with, in their own coordinates.

    images -> embed -> depth x block -> norm -> readout -> head

A subclass builds `embed`, `blocks`, `norm` (or None) and `head`, says how a class of points is read (`as_points`), and
pools. Points are [B, N, width]: ambient ones have a time coordinate in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polarvit.geometry import PolarPoint, ambient, from_ambient
from polarvit.models.base import VisionModel
from polarvit.models.config import VisionConfig
from polarvit.nn.baselines.lorentz import log0
from polarvit.nn.embed import check_images, resize_table
from polarvit.nn.precision import tensors_in_full_precision


@dataclass(frozen=True, kw_only=True)
class HyperbolicConfig(VisionConfig):
    """What every hyperbolic system here has beside the common fields."""

    k: float = 1.0
    """Curvature is -1/k."""
    target_radius: float | None = None
    """Radius `calibrate` brings every layer to; None is sqrt(k) asinh(sqrt(n/k)) for a width n."""


class StreamModel(VisionModel):
    """A hyperbolic vision transformer over plain tensors."""

    config_class: ClassVar[type[VisionConfig]] = HyperbolicConfig
    hyperbolic: ClassVar[bool] = True
    embed: nn.Module
    blocks: nn.ModuleList

    config: HyperbolicConfig

    @property
    def k(self) -> float:
        """Curvature is -1/k."""
        return self.config.k

    def tokens(self, images: Tensor) -> Iterator[Tensor]:
        """The stream after the embedding and after every block, [B, N, width] each."""
        check_images(type(self).__name__, images, self.config.in_chans, self.config.image)
        x = self.run(self.embed, images)
        yield x
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(self.run, block, x, use_reentrant=False)
            else:
                x = self.run(block, x)
            yield x

    def forward_features(self, images: Tensor) -> Tensor:
        """Tokens [B, N, width] after the final norm, if there is one."""
        x = None
        for x in self.tokens(images):  # noqa: B007 - the last one
            pass
        return self._normed(x)

    def pool(self, x: Tensor) -> Tensor:
        """The tokens of each sample as one point, [B, N, width] -> [B, width]."""
        raise TypeError(f"{type(self).__name__} does not define a readout")

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits [B, classes]; with `pre_logits` the pooled point in the tangent space at the origin."""
        pooled = self.pool(x)
        if pre_logits or isinstance(self.head, nn.Identity):
            return self.tangent(pooled)
        return self.run(self.head, pooled)

    def as_points(self, x: Tensor) -> PolarPoint:
        """Radius and direction of ambient points."""
        return from_ambient(x, k=self.k)

    @tensors_in_full_precision
    def tangent(self, x: Tensor) -> Tensor:
        """Logarithm at the origin of pooled points."""
        return log0(x, k=self.k)

    @tensors_in_full_precision
    def centroid(self, x: Tensor) -> Tensor:
        """The ambient centroid of the tokens."""
        return ambient.centroid(x, k=self.k)

    def no_weight_decay(self) -> set[str]:
        """Names for timm's optimizers; ours reads roles (`polarvit.parameters`)."""
        return self._names_without_decay()

    def resize_positions(self, state: dict[str, Tensor], grid: tuple[int, int]) -> None:
        """Fit the position table in `state` (made for `grid`) to this model's grid, in place; extra rows come first."""
        for key in ("embed.table", "embed.table.vector"):
            if key in state:
                extra = len(state[key]) - grid[0] * grid[1]
                table = resize_table(state[key][extra:], grid, self.config.grid)
                state[key] = torch.cat([state[key][:extra], table])
