"""Directions written in bfloat16 for the product that follows: rounded, nothing else, and so are upstream gradients."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from polarvit.kernels.heads.operator import merge_op
from polarvit.kernels.linear.operator import linear_epilogue_op
from polarvit.kernels.norm.operator import norm_forward

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def linear(device):
    tensors = torch.randn(6, 28), 2 * torch.rand(6), torch.randn(20) / 5, *torch.tensor([1.1, 0.2, -0.1]).unbind()
    return linear_epilogue_op, [x.to(device) for x in tensors], (2, 1.0)


def norm(device):
    tensors = torch.rand(2, 5), F.normalize(torch.randn(2, 5, 8), dim=-1), torch.tensor(1.5), torch.randn(8) / 5
    return norm_forward, [x.to(device) for x in tensors], (None, 1e-5)


def merge(device):
    u = F.normalize(torch.randn(2, 3, 8, 5, device=device), dim=2)
    return merge_op, [torch.rand(2, 3, 5, device=device), u], ()


@pytest.mark.parametrize("make", [linear, norm, merge])
def test_half_rounds_the_direction_and_takes_its_gradient_in_bfloat16(make, device):
    torch.manual_seed(0)
    op, tensors, numbers = make(device)
    leaves = [x.requires_grad_() for x in tensors]
    radius, whole, *_ = op(*leaves, *numbers)
    same, half, *_ = op(*leaves, *numbers, half=True)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(same, radius, rtol=0, atol=0)
    torch.testing.assert_close(half.float(), whole, rtol=2.0**-7, atol=1e-30)  # interpreted, bits are cut off
    ways = torch.randn_like(radius), torch.randn_like(half)
    wanted = torch.autograd.grad((radius, whole), leaves, (ways[0], ways[1].float()))
    ours = torch.autograd.grad((same, half), leaves, ways)
    for one, two in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
