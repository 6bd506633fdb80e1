"""A step with a vector carried along: exponential map and parallel transport, right where two ends lose the axes."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch
from oracle import Exact
from samples import directions

from polarvit.geometry import PolarPoint, PolarTangent, exp_map, transport
from polarvit.geometry.follow import follow

N = 5


def drawn(
    radius: float, length: float, tilt: float, dtype: torch.dtype, count: int = 8
) -> tuple[PolarPoint, PolarTangent, PolarTangent]:
    """Points at `radius`, steps with `tilt` of their length across, half of them inward, and vectors of length 1."""
    generator = torch.Generator().manual_seed(int(1000 * radius + 10 * length))
    u, across, along = (directions(count, N, torch.float64, generator) for _ in range(3))
    across, along = (x - (x * u).sum(-1, keepdim=True) * u for x in (across, along))
    across = tilt * length * across / across.norm(dim=-1, keepdim=True)
    side = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0).double() * length * (1 - tilt**2) ** 0.5
    radial = torch.randn(count, dtype=torch.float64, generator=generator)
    size = torch.hypot(radial, along.norm(dim=-1))
    pairs = (torch.full((count,), radius), u), (side, across), (radial / size, along / size.unsqueeze(-1))
    p, step, xi = ((one.to(dtype), many.to(dtype)) for one, many in pairs)
    return PolarPoint(*p), PolarTangent(*step), PolarTangent(*xi)


@pytest.mark.parametrize("k", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("tilt", [0.0, 1e-3, 0.7, 1.0])
def test_it_is_the_exponential_map_and_the_transport(tilt: float, k: float) -> None:
    for radius in (0.01, 0.5, 2.0, 5.0):
        for length in (1e-3, 0.3, 3.0):
            p, step, xi = drawn(radius, length, tilt, torch.float64)
            q, carried = follow(p, step, xi, k=k)
            end = exp_map(p, step, k=k)
            wanted = transport(p, end, xi, k=k)
            for one, two in zip((*q, *carried), (*end, *wanted), strict=True):
                torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("radius", [0.1, 3.0, 12.0, 20.0, 40.0, 80.0])
@mp.workdps(160)  # e^2r cancels in the oracle
def test_the_carried_vector_is_right_at_every_radius(radius: float, dtype: torch.dtype) -> None:
    exact = Exact(1.0)
    for length, tilt in ((0.01, 1.0), (0.01, 0.3), (0.01, 1e-4), (0.01, radius / mp.sinh(radius)), (1.0, 0.5)):
        p, step, xi = drawn(radius, length, float(min(tilt, 1)), dtype)
        _, carried = follow(p, step, xi)
        for i in range(len(p.radius)):
            at = (p.radius[i], p.direction[i])
            x = exact.point(*at)
            y = exact.exp(x, exact.tangent(*at, step.radial[i], step.perpendicular[i]))
            moved = exact.transport(x, y, exact.tangent(*at, xi.radial[i], xi.perpendicular[i]))
            sinh = mp.norm(y[1:])
            v = [value / sinh for value in y[1:]]
            outward = mp.fdot(v, moved[1:])
            wanted = outward * y[0] - moved[0] * sinh, [a - outward * b for a, b in zip(moved[1:], v, strict=True)]
            error = exact.frame_error(carried.radial[i], carried.perpendicular[i], wanted)
            assert error < 32 * torch.finfo(dtype).eps, f"length {length}, tilt {float(tilt):.2g}, row {i}"


def test_no_step_carries_nothing_anywhere() -> None:
    p, _, xi = drawn(2.0, 1.0, 0.5, torch.float64)
    q, carried = follow(p, PolarTangent(torch.zeros(8).double(), torch.zeros(8, N).double()), xi)
    for one, two in zip((*q, *carried), (*p, *xi), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("length", [1.0, 2.0, 3.0], ids=["short of", "into", "beyond"])
def test_radial_steps_through_the_origin_leave_vectors_in_place(length: float) -> None:
    """Beyond the origin the direction is the opposite one, so the radial part changes its sign; nothing else does."""
    p, _, xi = drawn(2.0, 1.0, 0.5, torch.float64)
    inward = PolarTangent(torch.full((8,), -length).double(), torch.zeros(8, N).double())
    q, carried = follow(p, inward, xi)
    side = -1 if length > 2 else 1
    torch.testing.assert_close(q.radius, torch.full((8,), abs(2 - length)).double())
    torch.testing.assert_close(q.direction, side * p.direction)
    torch.testing.assert_close(carried.radial, side * xi.radial)
    torch.testing.assert_close(carried.perpendicular, xi.perpendicular)
