"""The same network and weights in ambient arithmetic, as published Lorentz models compute: the baseline that fails.

Every point is one tensor [..., n+1] on the hyperboloid and every operation the textbook one of
`polarvit.geometry.ambient`. In float64 at small radius the twin agrees with its polar model to rounding; in float32
it shows what the same weights do when points are kept in coordinates. For tests and benchmarks, never to train.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.models.polar_vit import PolarBlock, PolarViT
from polarvit.nn import (
    BoostResidual,
    BoostShift,
    ClassTokenPool,
    ExactBoostResidual,
    GyroLayerNorm,
    HoroShift,
    PolarAttention,
    PolarLinear,
    PolarMLR,
    PositionalEncoding,
    Residual,
    RotaryShift,
)
from polarvit.nn.embed import patchify


class AmbientTwin(nn.Module):
    """`AmbientTwin(model)(images)` -> logits [B, classes]: the evaluation-mode forward of `model`, in its dtype.

    It shares the parameters of `model`, so it can be trained, for as long as ambient arithmetic lets it.
    """

    def __init__(self, model: PolarViT) -> None:
        super().__init__()
        if not isinstance(model, PolarViT):
            raise TypeError(f"AmbientTwin: expected a PolarViT, got {type(model).__name__}")
        self.model, self.k = model, float(model.k)

    def forward(self, images: Tensor) -> Tensor:
        model = self.model
        x = self.embed(images.to(model.embed.proj.weight.dtype))
        for block in model.blocks:
            assert isinstance(block, PolarBlock)
            x = self.residual(block.residual1, x, self.attention(block.attention, self.norm(block.norm1, x)))
            step = self.linear(block.mlp.fc2, self.linear(block.mlp.fc1, self.norm(block.norm2, x)))
            x = self.residual(block.residual2, x, step)
        if model.norm is not None:
            x = self.norm(model.norm, x)
        return self.head(x[..., 0, :] if isinstance(model.pool, ClassTokenPool) else ambient.centroid(x, k=self.k))

    def embed(self, images: Tensor) -> Tensor:
        """Patches as space coordinates, the linear layer, the position table, the class token."""
        embed, k = self.model.embed, self.k
        x = self.linear(embed.proj, ambient.from_space(patchify(images, embed.patch_size), k=k))
        if embed.table is not None:
            x = ambient.from_space(ambient.to_space(x) + embed.table, k=k)
        if embed.token is not None:
            x = torch.cat([ambient.from_tangent0(embed.token, k=k).expand(len(x), 1, -1), x], 1)
        return x

    def linear(self, layer: PolarLinear, x: Tensor) -> Tensor:
        """h = phi(W x) scaled to the radius of the layer's rule, time recomputed."""
        root = math.sqrt(self.k)
        h = F.linear(x, torch.cat([layer.time_weight.unsqueeze(-1), layer.weight], -1))
        if layer.activation is not None:
            h = torch.relu(h) if layer.activation == "relu" else F.gelu(h)
        norm = h.norm(dim=-1)
        a, u = self.polar(x)
        radius = layer.rule(torch.log(norm / root), a, u, ambient.to_klein(x))
        return ambient.from_space((root * torch.sinh(radius) / norm).unsqueeze(-1) * h, k=self.k)

    def attention(self, layer: PolarAttention, x: Tensor) -> Tensor:
        """Scores by arcosh of the inner product, values joined by the ambient centroid, heads by concatenation."""
        layers, gains = (layer.query, layer.key, layer.value), layer.log_gain.exp().unsqueeze(-1)
        parts = [torch.stack(ambient.split(self.linear(each, x), layer.heads, k=self.k), 1) for each in layers]
        if layer.gain == "after_shift":
            parts[:2] = [self.position(layer.position, p) for p in parts[:2]]
        heads = [ambient.gyroscale(p, gain, k=self.k) for p, gain in zip(parts, gains, strict=True)]
        if layer.gain == "before_shift":
            heads[:2] = [self.position(layer.position, p) for p in heads[:2]]
        query, key = heads[:2]
        scores = -layer.scale().view(-1, 1, 1) * ambient.pairwise_distance(query, key, k=self.k).square()
        joined = ambient.centroid(heads[2], scores.softmax(-1), k=self.k)
        return self.linear(layer.out, ambient.concat(joined.unbind(1), k=self.k))

    def position(self, encoding: PositionalEncoding, x: Tensor) -> Tensor:
        """The group's matrices applied to coordinates [B, H, N, d+1]."""
        if isinstance(encoding, RotaryShift):
            for axis in range(encoding.grid_axes):
                for pair in range(encoding.pairs):
                    angle = encoding.rate[:, axis, None] * self.model.positions[:, axis]
                    first = 2 * (axis * encoding.pairs + pair)
                    turn = angle * encoding.base ** (-pair / encoding.pairs)
                    x = ambient.rotate(x, turn, axes=(first, first + 1), k=self.k)
        elif isinstance(encoding, HoroShift | BoostShift):
            t = encoding.shifts(self.model.positions, self.model.extent)
            for axis in range(encoding.grid_axes):
                if isinstance(encoding, BoostShift):
                    x = ambient.boost(x, t[..., axis], axis=2 * axis, k=self.k)
                else:  # shifts around one ideal point commute, so `joint` is one after the other
                    axes = (0, axis + 1) if encoding.mode == "joint" else (2 * axis, 2 * axis + 1)
                    x = ambient.horoshift(x, t[..., axis], axes=axes, k=self.k)
        return x

    def norm(self, layer: GyroLayerNorm, x: Tensor) -> Tensor:
        """Logarithm at the centroid, transport to the origin, scaling, exponential, gyroaddition of the bias."""
        k = self.k
        mean = ambient.centroid(x, k=k).unsqueeze(-2).expand_as(x)
        start = ambient.origin(layer.dim, k=k, like=x).expand_as(x)
        xi = ambient.transport(mean, start, ambient.log_map(mean, x, k=k), k=k)
        variance = ambient.inner(xi, xi).mean(-1, keepdim=True)
        factor = layer.log_gain.exp() * torch.rsqrt(variance + layer.eps)
        scaled = ambient.exp_map(start, factor.unsqueeze(-1) * xi, k=k)
        return ambient.gyroadd(ambient.from_tangent0(layer.bias, k=k).expand_as(x), scaled, k=k)

    def residual(self, layer: Residual, x: Tensor, step: Tensor) -> Tensor:
        """Radii by arcosh of the time coordinate, directions by normalised space coordinates."""
        k, root = self.k, math.sqrt(self.k)
        if not isinstance(layer, BoostResidual | ExactBoostResidual):
            return ambient.from_space(ambient.to_space(x) + ambient.to_space(step), k=k)
        (a, u), (b, v) = self.polar(x), self.polar(step)
        cosine = (u * v).sum(-1)
        sideways = v - cosine.unsqueeze(-1) * u
        radial, stride = layer.alpha * b * cosine, (layer.alpha * b).unsqueeze(-1)
        if isinstance(layer, ExactBoostResidual):
            moved = ambient.from_tangent0(root * (a + radial).unsqueeze(-1) * u, k=k)
            return ambient.gyroadd(ambient.from_tangent0(root * stride * sideways, k=k), moved, k=k)
        length = sideways.norm(dim=-1, keepdim=True)
        tilt = torch.tanh(a).unsqueeze(-1) * u + torch.sinh(stride * length) * sideways / length
        goal = (a + radial - radial.mean(-1, keepdim=True)).unsqueeze(-1)
        direction = tilt / tilt.norm(dim=-1, keepdim=True)
        return torch.cat([root * torch.cosh(goal), root * torch.sinh(goal) * direction], -1)

    def head(self, x: Tensor) -> Tensor:
        """Lorentz MLR as published (HCNN): alpha = -w_t x_0 + cosh(A) <z, x_s>."""
        head, root = self.model.head, math.sqrt(self.k)
        if not isinstance(head, PolarMLR):
            return head(ambient.to_tangent0(x, k=self.k))
        size, shift = head.normal.norm(dim=-1), head.offset / root
        time = torch.sinh(shift) * size
        alpha = F.linear(x[..., 1:], torch.cosh(shift).unsqueeze(-1) * head.normal) - x[..., :1] * time
        beta = torch.sqrt((torch.cosh(shift) * size).square() - time.square())
        return root * beta * torch.asinh(alpha / (root * beta))

    def polar(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rescaled radius and direction, read off coordinates."""
        space = x[..., 1:]
        return torch.acosh(x[..., 0] / math.sqrt(self.k)), space / space.norm(dim=-1, keepdim=True)
