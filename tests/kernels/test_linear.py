"""The fused epilogue of the polar linear layer against its float64 reference."""

import pytest
import torch

from polarvit.kernels.linear import operator, reference_linear_epilogue
from polarvit.kernels.linear.operator import ACTIVATIONS, linear_epilogue_op

SHAPES = [(37, 20), (5, 192), (1, 7), (66, 64), (3, 384), (3, 1500)]


def inputs(rows: int, width: int, device: torch.device, radius: float = 4.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + width)
    product = torch.randn(rows, width + 8, generator=generator) / 3
    a = radius * torch.rand(rows, generator=generator)
    weight = torch.randn(width, generator=generator) / 5
    return [x.to(device) for x in (product, a, weight, torch.tensor(1.1), torch.tensor(0.2), torch.tensor(-0.1))]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    torch.manual_seed(0)
    make = operator.new_output
    monkeypatch.setattr(operator, "new_output", lambda *given: make(*given).fill_(torch.nan))


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize(("rows", "width"), SHAPES, ids=lambda x: str(x))
def test_values_and_gradients_are_those_of_the_reference(activation, rows, width, device):
    leaves = [x.requires_grad_() for x in inputs(rows, width, device)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    radius, direction, _ = linear_epilogue_op(*leaves, ACTIVATIONS[activation], 1.3)
    wanted = reference_linear_epilogue(*exact, out_features=width, activation=activation, root_k=1.3)
    torch.testing.assert_close(radius.double(), wanted[0], rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(direction.double(), wanted[1], rtol=0, atol=1e-6)
    ways = [torch.randn_like(radius), torch.randn_like(direction)]
    sum((x * y).sum() for x, y in zip((radius, direction), ways, strict=True)).backward()
    sum((x * y).sum() for x, y in zip(wanted, ways, strict=True)).backward()
    for one, two in zip(leaves, exact, strict=True):
        assert (one.grad - two.grad).norm() <= 1e-5 * two.grad.norm() + 2e-6  # sums that may cancel


def test_rows_taken_in_turns_give_the_same(device, monkeypatch):
    leaves = [x.requires_grad_() for x in inputs(150, 20, device)]

    def gradients():
        radius, direction, _ = linear_epilogue_op(*leaves, 2, 1.0)
        return torch.autograd.grad(radius.sum() + direction[:, 3].sum(), leaves)

    whole = gradients()
    monkeypatch.setattr(operator, "backward_launch", lambda width, activation: operator.Launch(16, 1, 4))
    for ours, theirs in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_row_of_zeros_gives_the_origin_and_finite_gradients(device):
    product, a, weight, *scalars = inputs(4, 16, device)
    product[1] = 0
    leaves = [x.requires_grad_() for x in (product, a, torch.zeros_like(weight), *scalars)]
    radius, direction, _ = linear_epilogue_op(*leaves, 0, 1.0)
    assert radius[1] < 1e-15
    assert direction[1, 0] == 1
    (radius.sum() + direction.sum()).backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


@pytest.mark.parametrize("far", [60.0, 200.0, 1000.0])
def test_any_input_radius_is_finite(far, device):
    leaves = [x.requires_grad_() for x in inputs(6, 16, device)]
    with torch.no_grad():
        leaves[1].fill_(far)
    radius, direction, _ = linear_epilogue_op(*leaves, 2, 1.0)
    exact = [x.detach().double() for x in leaves]
    wanted, _ = reference_linear_epilogue(*exact, out_features=16, activation="gelu")
    torch.testing.assert_close(radius.double(), wanted, rtol=1e-6, atol=1e-5)
    (radius.sum() + direction.sum()).backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


def test_a_bfloat16_product_is_computed_with_in_float32_and_gets_a_bfloat16_gradient(device):
    product, *rest = inputs(7, 20, device)
    rough = product.bfloat16().requires_grad_()
    same = product.bfloat16().float().requires_grad_()
    ways = torch.randn(7, device=device), torch.randn(7, 20, device=device)
    for x in (rough, same):
        radius, direction, _ = linear_epilogue_op(x, *rest, ACTIVATIONS["gelu"], 1.0)
        assert radius.dtype == direction.dtype == torch.float32
        (radius * ways[0]).sum().add((direction * ways[1]).sum()).backward()
    assert rough.grad.dtype == torch.bfloat16
    torch.testing.assert_close(rough.grad.float(), same.grad, rtol=2.0**-7, atol=1e-30)  # interpreted, bits are cut off
