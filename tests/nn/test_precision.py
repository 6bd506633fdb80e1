"""Products of rows that lie features first in memory are those of ordinary rows, and so are their gradients."""

import torch
import torch.nn.functional as F

from polarvit.nn.precision import FeaturesFirst, FromFeatures


def gradients(y, way, leaves):
    return torch.autograd.grad((y * way).sum(), leaves)


def test_a_product_from_features_is_the_linear_one():
    x, weight = torch.randn(5, 7, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    way = torch.randn(7, 3, dtype=torch.float64)
    ours, theirs = FromFeatures.apply(x, weight), F.linear(x.mT, weight)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, way, leaves), gradients(theirs, way, leaves))


def test_a_product_to_features_is_the_linear_one_transposed():
    x, weight = torch.randn(7, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    way = torch.randn(3, 7, dtype=torch.float64)
    ours, theirs = FeaturesFirst.apply(x, weight), F.linear(x, weight).mT
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, way, leaves), gradients(theirs, way, leaves))
