"""The stretches between two matrix products, one for each fused kernel, as the modules of `polarvit.nn` call them; and
what has no kernel because the compiler does well.

An operation is a function of tensors with the module's parameters behind it, and makes its own inputs: the benchmark
times it with the kernels and with plain code, and counts the bytes it must move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.nn import (
    BoostResidual,
    CentroidPool,
    GyroLayerNorm,
    PolarAttention,
    PolarLinear,
    PolarMLR,
    grid_positions,
    positional_encoding,
)
from polarvit.nn.linear import Begun, joined


@dataclass(frozen=True)
class Sizes:
    """B samples of side x side tokens of dimension dim, in heads; the MLP is `hidden` wide."""

    batch: int
    side: int
    dim: int
    heads: int
    hidden: int

    @property
    def tokens(self) -> int:
        return self.side**2


SIZES = {
    "tiny": Sizes(128, 8, 192, 12, 384),
    "small": Sizes(64, 14, 384, 6, 1536),
}
NARROW = Sizes(2, 3, 24, 2, 48)
"""Where there is no GPU."""


@dataclass(frozen=True)
class Prepared:
    """An operation ready to run: `function(*inputs)` gives tensors; `inputs` and `parameters` receive gradients."""

    function: Callable[..., Sequence[Tensor]]
    inputs: Sequence[Tensor]
    parameters: Sequence[Tensor]


@dataclass(frozen=True)
class Operation:
    """One stretch: the word to ask for it, what it is, how it is made (`plain`: without the attention kernel), and
    whether it has a fused kernel."""

    key: str
    label: str
    make: Callable[[Sizes, torch.device, bool], Prepared]
    fused: bool = True


def points(shape: Sequence[int], device: torch.device) -> list[Tensor]:
    """Radii from 1/2 to 2 and unit directions."""
    radius = 0.5 + 1.5 * torch.rand(tuple(shape[:-1]), device=device)
    return [radius, F.normalize(torch.randn(tuple(shape), device=device), dim=-1)]


def product_of(rows: int, s: Sizes, width: int, device: torch.device) -> Tensor:
    """What a matrix product of unit directions looks like."""
    return torch.randn(s.batch, s.tokens, rows, device=device) * width**-0.5


def prepared(module: nn.Module, function: Callable[..., PolarPoint], inputs: Sequence[Tensor]) -> Prepared:
    return Prepared(lambda *x: tuple(function(*x)), inputs, list(module.parameters()))


def linear(activation: Literal["gelu"] | None) -> Callable[[Sizes, torch.device, bool], Prepared]:
    def make(s: Sizes, device: torch.device, plain: bool) -> Prepared:
        wide = (s.dim, s.hidden) if activation else (s.hidden, s.dim)
        layer = PolarLinear(*wide, activation=activation).to(device)
        radius, direction = points((s.batch, s.tokens, wide[0]), device)
        y = product_of(len(layer.joined_weight()), s, wide[0], device)
        return prepared(layer, lambda a, y: layer.finish(PolarPoint(a, direction), y), [radius, y])

    return make


def attention_module(s: Sizes, device: torch.device, plain: bool) -> PolarAttention:
    encoding = positional_encoding("separate", s.heads, s.dim // s.heads, rate=1.0)
    implementation: Literal["auto", "reference"] = "reference" if plain else "auto"
    return PolarAttention(s.dim, s.heads, encoding, implementation=implementation).to(device)


def head_points(s: Sizes, device: torch.device) -> list[Tensor]:
    """Heads [B, H, N], directions dimension first in memory."""
    radius, direction = points((s.batch, s.heads, s.tokens, s.dim // s.heads), device)
    return [radius, direction.mT.contiguous().mT]


def project(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    module = attention_module(s, device, plain)
    layers = (module.query, module.key, module.value)
    rows = joined([layer.weight for layer in layers], [layer.rule.phi for layer in layers])
    positions, extent = (x.to(device) for x in grid_positions((s.side, s.side)))
    radius, direction = points((s.batch, s.tokens, s.dim), device)

    def function(a: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        heads = module.project_together(PolarPoint(a, direction), y, positions, extent)
        return tuple(x for point in heads for x in point)

    features_first = product_of(len(rows), s, s.dim, device).flatten(0, 1).mT.contiguous()
    return Prepared(function, [radius, features_first], list(module.parameters()))


def core(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    module = attention_module(s, device, plain)
    inputs = [x for _ in range(3) for x in head_points(s, device)]
    return prepared(module, lambda *x: module.attend(*(PolarPoint(*x[i : i + 2]) for i in (0, 2, 4))), inputs)


def merge(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    module = attention_module(s, device, plain)
    return prepared(module, lambda a, u: module.merge(PolarPoint(a, u)), head_points(s, device))


def residual(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    layer = BoostResidual().to(device)
    inputs = [x for _ in range(2) for x in points((s.batch, s.tokens, s.dim), device)]
    return prepared(layer, lambda a, u, b, v: layer(PolarPoint(a, u), PolarPoint(b, v)), inputs)


def step(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    layer, move = PolarLinear(s.hidden, s.dim).to(device), BoostResidual().to(device)
    radius, direction = points((s.batch, s.tokens, s.dim), device)
    source, unused = points((s.batch, s.tokens, s.hidden), device)
    y = product_of(len(layer.joined_weight()), s, s.hidden, device)

    def function(a: Tensor, u: Tensor, c: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return tuple(move(PolarPoint(a, u), Begun(layer, PolarPoint(c, unused), y)))

    return Prepared(function, [radius, direction, source, y], [*layer.parameters(), *move.parameters()])


def norm(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    layer = GyroLayerNorm(s.dim).to(device)
    return prepared(layer, lambda a, u: layer(PolarPoint(a, u)), points((s.batch, s.tokens, s.dim), device))


def read_out(s: Sizes, device: torch.device, plain: bool) -> Prepared:
    pool, head = CentroidPool(), PolarMLR(s.dim, CLASSES).to(device)
    return Prepared(
        lambda a, u: (head(pool(PolarPoint(a, u))),),
        points((s.batch, s.tokens, s.dim), device),
        list(head.parameters()),
    )


CLASSES = 100
OPERATIONS = (
    Operation("norm", "gyro layer norm", norm),
    Operation("heads", "product to placed q, k, v heads", project),
    Operation("attention", "attention core", core),
    Operation("merge", "heads joined", merge),
    Operation("linear", "product to point", linear(None)),
    Operation("linear-gelu", "product to point with GELU", linear("gelu")),
    Operation("residual", "boost residual", residual),
    Operation("step", "product to moved tokens", step),
    Operation("read-out", "pooling and head", read_out, fused=False),
)
