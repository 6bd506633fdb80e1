"""Points to test with: close, far, opposite and coinciding pairs at a chosen radius."""

from __future__ import annotations

import torch

from polarvit.geometry import PolarPoint

RELATIONS = ("close", "far", "opposite", "coinciding")


def directions(count: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(count, n, dtype=torch.float64, generator=generator)
    return (x / x.norm(dim=-1, keepdim=True)).to(dtype)


def pair(
    relation: str, count: int, n: int, radius: float, k: float, dtype: torch.dtype, seed: int
) -> tuple[PolarPoint, PolarPoint]:
    """Two points [count] in H^n near `radius`; `close` means a geodesic gap of about sqrt(k)."""
    generator = torch.Generator().manual_seed(seed)
    u = directions(count, n, torch.float64, generator)
    r = torch.full((count,), radius, dtype=torch.float64)
    noise = torch.randn(count, n, dtype=torch.float64, generator=generator) / n**0.5
    if relation == "coinciding":
        v, s = u, r
    elif relation == "far":
        v = directions(count, n, torch.float64, generator)
        s = radius * torch.rand(count, dtype=torch.float64, generator=generator)
    else:
        spread = 1 / torch.sinh(torch.tensor(max(radius, 1e-3) / k**0.5, dtype=torch.float64)).clamp_min(1)
        v = u + spread * noise
        v = v / v.norm(dim=-1, keepdim=True) * (-1 if relation == "opposite" else 1)
        s = (r + 0.5 * torch.randn(count, dtype=torch.float64, generator=generator) * min(radius, 1.0)).abs()
    return PolarPoint(r.to(dtype), u.to(dtype)), PolarPoint(s.to(dtype), v.to(dtype))
