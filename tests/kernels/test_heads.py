"""The fused way from the joint product to placed heads, and from heads to tokens, against float64 references."""

import pytest
import torch

from polarvit.geometry import PolarPoint
from polarvit.kernels.heads import operator, reference_merge_heads, reference_project_heads
from polarvit.kernels.heads.operator import MODES, merge_op, project_op

SHAPES = [(2, 9, 3, 8), (1, 5, 2, 6), (1, 17, 1, 16)]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    torch.manual_seed(0)
    make = operator.new_output
    monkeypatch.setattr(operator, "new_output", lambda *given: make(*given).fill_(torch.nan))


def inputs(shape: tuple[int, ...], device: torch.device) -> list[torch.Tensor]:
    b, n, heads, width = shape
    generator = torch.Generator().manual_seed(sum(shape))
    draw = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
    product = draw(3 * heads * width + 8, b * n) / 3
    a = 4 * torch.rand(b, n, generator=generator)
    scalars = torch.tensor([[1.1, 0.2, -0.1], [0.9, 0.1, 0.2], [1.0, -0.2, 0.3]])
    tensors = (product, a, draw(3, heads * width) / 5, scalars, draw(3, heads) / 5, draw(heads, 2))
    return [x.to(device) for x in tensors]


def across(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return g - (g * u).sum(-1, keepdim=True) * u


@pytest.mark.parametrize("mode", ["none", "separate", "joint"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}-N{}-H{}-d{}".format(*s))
def test_placed_heads_and_their_gradients_are_those_of_the_reference(mode, shape, device):
    _b, n, _heads, _width = shape
    leaves = [x.requires_grad_() for x in inputs(shape, device)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    place = torch.rand(n, 2, device=device)
    outputs = project_op(*leaves, place, MODES[mode])
    wanted = reference_project_heads(*exact, place.double(), mode)
    ours, theirs = leaves[0].new_zeros(()), exact[0].new_zeros(())
    for j, point in enumerate(wanted):
        got = PolarPoint(outputs[2 * j], outputs[2 * j + 1].mT)
        torch.testing.assert_close(got.radius.double(), point.radius, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(got.direction.double(), point.direction, rtol=0, atol=2e-6)
        for x, y in zip(got, point, strict=True):
            way = torch.randn_like(x)
            ours, theirs = ours + (x * way).sum(), theirs + (y * way).sum()
    ours.backward()
    theirs.backward()
    for one, two in zip(leaves, exact, strict=True):
        if two.grad is None:
            assert one.grad is None
        else:
            assert (one.grad - two.grad).norm() <= 1e-5 * two.grad.norm() + 2e-6


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}-N{}-H{}-d{}".format(*s))
@pytest.mark.parametrize("far", [1.0, 12.0])
def test_merged_heads_and_their_gradients_are_those_of_the_reference(shape, far, device):
    b, n, heads, width = shape
    radius = (far + torch.rand(b, heads, n, device=device)).requires_grad_()
    u = torch.nn.functional.normalize(torch.randn(b, heads, width, n, device=device), dim=2).requires_grad_()
    exact = [radius.detach().double().requires_grad_(), u.detach().double().requires_grad_()]
    joined, features = merge_op(radius, u)
    got = joined, features.mT.unflatten(0, (b, n))
    wanted = reference_merge_heads(PolarPoint(exact[0], exact[1].mT))
    ours, theirs = radius.new_zeros(()), exact[0].new_zeros(())
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=2e-6, atol=2e-6)
        way = torch.randn_like(x)
        ours, theirs = ours + (x * way).sum(), theirs + (y * way).sum()
    ours.backward()
    theirs.backward()
    assert (radius.grad - exact[0].grad).norm() <= 1e-5 * exact[0].grad.norm()
    gap = across(u.grad.mT, u.detach().mT) - across(exact[1].grad.mT, exact[1].detach().mT)
    assert gap.norm() <= 1e-5 * exact[1].grad.norm()


def test_heads_at_the_origin_and_empty_slices_are_finite(device):
    leaves = inputs((1, 4, 2, 8), device)
    leaves[0][:8] = 0
    leaves[2] = torch.zeros_like(leaves[2])
    leaves = [x.requires_grad_() for x in leaves]
    outputs = project_op(*leaves, torch.rand(4, 2, device=device), MODES["separate"])
    sum(x.sum() for x in outputs).backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)
    merged = merge_op(torch.zeros_like(outputs[0]), outputs[1].detach())
    assert merged[0].max() < 1e-15
    assert torch.isfinite(merged[1]).all()


def test_a_bfloat16_product_is_computed_with_in_float32_and_gets_a_bfloat16_gradient(device):
    product, *rest = inputs((2, 5, 2, 8), device)
    rough = product.bfloat16().requires_grad_()
    same = product.bfloat16().float().requires_grad_()
    ways: list[torch.Tensor] = []
    for x in (rough, same):
        outputs = project_op(x, *rest, torch.full((5, 2), 0.3, device=device), MODES["separate"])
        ways = ways or [torch.randn_like(y) for y in outputs]
        assert all(y.dtype == torch.float32 for y in outputs)
        sum((y * way).sum() for y, way in zip(outputs, ways, strict=True)).backward()
    assert rough.grad.dtype == torch.bfloat16
    torch.testing.assert_close(rough.grad.float(), same.grad, rtol=2.0**-7, atol=1e-30)  # interpreted, bits are cut off
