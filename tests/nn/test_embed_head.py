"""The two ends: patches to points, points to logits."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest
import torch

from polarvit.geometry import PolarPoint, from_space, from_tangent0, to_space
from polarvit.nn import CentroidPool, PolarMLR, PolarPatchEmbed
from polarvit.nn.embed import patchify, resize_table


def test_patches_are_cut_row_by_row() -> None:
    images = torch.arange(2 * 1 * 4 * 6.0).reshape(2, 1, 4, 6)
    patches = patchify(images, 2)
    assert patches.shape == (2, 6, 4)
    assert patches[0, 1].tolist() == [2, 3, 8, 9]
    assert patches[0, 3].tolist() == [12, 13, 18, 19]


def test_the_position_table_is_added_to_space_coordinates() -> None:
    embed = PolarPatchEmbed((4, 6), 2, 3, 8, std=0.5)
    images = torch.randn(2, 3, 4, 6)
    bare = embed.proj(from_space(patchify(images, 2)))
    torch.testing.assert_close(to_space(embed(images)), to_space(bare) + embed.table, rtol=1e-5, atol=1e-6)


def test_the_class_token_comes_first_and_trains_from_the_origin() -> None:
    embed = PolarPatchEmbed((4, 4), 2, 3, 8, class_token=True)
    out = embed(torch.randn(2, 3, 4, 4))
    assert out.shape == (2, 5)
    assert out.radius[:, 0].max() < 1e-15
    (out.radius.unsqueeze(-1) * out.direction)[:, 0].sum().backward()
    torch.testing.assert_close(embed.token.grad, torch.full((8,), 2.0))


def test_wrong_images_and_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected images \[B, 3, 4, 4\], got \[2, 3, 4, 6\]"):
        PolarPatchEmbed((4, 4), 2, 3, 8)(torch.zeros(2, 3, 4, 6))
    with pytest.raises(ValueError, match="not divisible by patch size 3"):
        PolarPatchEmbed((4, 4), 3, 3, 8)


def test_a_resized_table_keeps_a_smooth_pattern() -> None:
    ramp = torch.linspace(0, 1, 8).repeat(8, 1).reshape(64, 1)
    again = resize_table(resize_table(ramp, (8, 8), (16, 16)), (16, 16), (8, 8))
    torch.testing.assert_close(again, ramp, atol=0.02, rtol=0)
    assert resize_table(ramp, (8, 8), (8, 8)) is ramp
    with pytest.raises(ValueError, match="does not fit grid"):
        resize_table(ramp, (4, 4), (8, 8))


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_logits_are_hcnn_s_in_high_precision(k: float) -> None:
    torch.manual_seed(0)
    head = PolarMLR(4, 5).double()
    u = torch.nn.functional.normalize(torch.randn(6, 4, dtype=torch.float64), dim=-1)
    x = PolarPoint(torch.tensor([0.01, 0.5, 2.0, 8.0, 12.0, 15.0], dtype=torch.float64), u)
    logits = head(x, k=k).detach()
    with mpmath.workdps(60):
        root = mpmath.sqrt(k)
        for i in range(6):
            a = mpmath.mpf(x.radius[i].item()) / root
            direction = [mpmath.mpf(v) for v in u[i].tolist()]
            length = mpmath.sqrt(sum(v * v for v in direction))
            for c in range(5):
                z = [mpmath.mpf(v) for v in head.normal[c].tolist()]
                shift, norm = mpmath.mpf(head.offset[c].item()) / root, mpmath.sqrt(sum(v * v for v in z))
                inner = sum(p * q for p, q in zip(z, direction, strict=True)) / length
                alpha = root * (
                    mpmath.cosh(shift) * mpmath.sinh(a) * inner - mpmath.sinh(shift) * norm * mpmath.cosh(a)
                )
                exact = float(root * norm * mpmath.asinh(alpha / (root * norm)))
                assert logits[i, c].item() == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_at_the_origin_a_logit_rises_along_its_normal(k: float) -> None:
    """logit(v) = -offset |z| + z.v + O(v^2), whatever direction the origin is stored with."""
    torch.manual_seed(0)
    head = PolarMLR(4, 3).double()
    v = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    logits = head(from_tangent0(v), k=k)
    torch.testing.assert_close(logits, -head.offset * head.normal.norm(dim=-1))
    rise = torch.stack([torch.autograd.grad(logit, v, retain_graph=True)[0] for logit in logits])
    torch.testing.assert_close(rise, head.normal.detach())


def test_logits_are_odd_in_the_normal_at_any_radius() -> None:
    torch.manual_seed(0)
    head = PolarMLR(4, 3)
    torch.nn.init.zeros_(head.offset)
    u = torch.nn.functional.normalize(torch.randn(4, 4), dim=-1)
    for radius in (1.0, 30.0, 60.0, 200.0):
        here = head(PolarPoint(torch.full((4,), radius), u))
        there = head(PolarPoint(torch.full((4,), radius), -u))
        torch.testing.assert_close(here, -there, rtol=1e-5, atol=1e-6)
        assert here.abs().min() > 0
        grads = torch.autograd.grad(here.sum(), head.parameters())
        assert all(torch.isfinite(g).all() for g in grads)


def points_and_head(samples: int, dtype: torch.dtype = torch.float32) -> tuple[PolarPoint, PolarMLR]:
    """Points of which the first two lie on a class's normal and against another's."""
    torch.manual_seed(0)
    head = PolarMLR(6, 5)
    direction = torch.nn.functional.normalize(torch.randn(samples, 6), dim=-1)
    direction[0] = head.normal[1].detach() / head.normal[1].detach().norm()
    direction[1] = -head.normal[2].detach() / head.normal[2].detach().norm()
    radius = 0.5 + 2 * torch.rand(samples)
    point = PolarPoint(radius.to(dtype).requires_grad_(), direction.to(dtype).requires_grad_())
    return point, head.to(dtype)


def logits_and_gradients(function: Any, point: PolarPoint, head: PolarMLR) -> list[torch.Tensor]:
    logits = function(point)
    ways = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
    gradients = torch.autograd.grad((logits * ways).sum(), [point.radius, point.direction, *head.parameters()])
    return [logits.detach(), *gradients]


def test_gradients_on_a_normal_and_against_one_are_those_of_float64() -> None:
    ours, exact = (
        logits_and_gradients(head, point, head)
        for point, head in (points_and_head(9), points_and_head(9, torch.float64))
    )
    for x, y in zip(ours, exact, strict=True):
        assert x.isfinite().all()
        assert (x - y).norm() <= 2e-6 * y.norm()


@pytest.mark.parametrize("samples", [1, 9])
def test_the_compiled_read_out_writes_differences_out_and_gives_the_same(samples: int) -> None:
    torch.manual_seed(2)
    _, head = points_and_head(2)
    tokens = PolarPoint(
        torch.rand(samples, 4).requires_grad_(),
        torch.nn.functional.normalize(torch.randn(samples, 4, 6), dim=-1).requires_grad_(),
    )
    pool = CentroidPool()

    def read_out(x: PolarPoint) -> torch.Tensor:
        return head(pool(x))

    calls: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        for module in graph.modules():
            calls.extend(str(node.target) for node in module.graph.nodes)
        return graph.forward

    torch.compile(read_out, backend=backend, fullgraph=True)(tokens)
    assert not [name for name in calls if "cdist" in name]
    torch._dynamo.reset()
    ours = logits_and_gradients(torch.compile(read_out, backend="aot_eager", fullgraph=True), tokens, head)
    for x, y in zip(ours, logits_and_gradients(read_out, tokens, head), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
