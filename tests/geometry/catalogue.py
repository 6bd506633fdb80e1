"""Every public function with arguments that suit it: what tests walk over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from samples import directions

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent

Arguments = tuple[Any, ...]

B, N = 5, 4
GIVEN: dict[str, tuple[str, ...]] = {
    "boost": ("p", "t"),
    "busemann": ("p",),
    "centroid": ("p", "w"),
    "concat": ("p", "q"),
    "distance": ("p", "q"),
    "exp_map": ("p", "xi"),
    "from_ambient": ("ambient",),
    "from_ball": ("small",),
    "from_klein": ("small",),
    "from_space": ("v",),
    "from_tangent0": ("v",),
    "gyroadd": ("p", "q"),
    "gyroneg": ("p",),
    "gyroscale": ("p", "t"),
    "horoshift": ("p", "t"),
    "log_map": ("p", "q"),
    "pairwise_distance": ("p", "q"),
    "riemannian_gradient": ("p", "q"),
    "rotate": ("p", "t"),
    "split": ("p",),
    "split_heads": ("p",),
    "squared_distance": ("p", "q"),
    "tangent_inner": ("xi", "xi"),
    "to_ambient": ("p",),
    "to_ball": ("p",),
    "to_klein": ("p",),
    "to_space": ("p",),
    "to_tangent0": ("p",),
    "transport": ("p", "q", "xi"),
}
"""Names of the tensor arguments of every function but `validate`, which only looks."""


def arguments(name: str, dtype: torch.dtype = torch.float32, batch: tuple[int, ...] = (B,), seed: int = 0) -> Arguments:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    count = int(torch.tensor(batch).prod()) if batch else 1

    def point() -> PolarPoint:
        u = directions(count, N, dtype, generator)
        return PolarPoint((2 * torch.rand(count, generator=generator)).to(dtype), u).reshape(*batch)

    p, q = point(), point()
    x = normal(*batch, N + 1)
    v = normal(*batch, N)
    xi = PolarTangent(x[..., 0], x[..., 1:] - (x[..., 1:] * p.direction).sum(-1, keepdim=True) * p.direction)
    values = {
        "p": p,
        "q": q,
        "xi": xi,
        "v": v,
        "small": 0.2 * v,
        "ambient": torch.cat([torch.sqrt(1 + v.square().sum(-1, keepdim=True)), v], -1),
        "t": normal(*batch),
        "w": normal(*batch).abs(),
    }
    return tuple(values[key] for key in GIVEN[name])


def call(name: str) -> Callable[..., Any]:
    """The function with its remaining arguments set; `concat` takes its two points one by one."""
    function = getattr(geometry, name)
    extra = {"split": (2,), "split_heads": (2,)}.get(name, ())
    if name == "concat":
        return lambda *points, **options: function(list(points), **options)
    return lambda *values, **options: function(*values, *extra, **options)
