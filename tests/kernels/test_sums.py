"""The sum over programs: every row and column counted once, the same bits each time."""

import importlib

import pytest
import torch

pytest.importorskip("triton")
sums = importlib.import_module("polarvit.kernels.sums")


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (128, 16), (300, 203), (512, 40), (1025, 7)])
def test_every_number_is_counted_once(rows, columns, device):
    # Whole numbers: the sum has no rounding, so one that is left out or taken twice shows.
    partials = torch.randint(-50, 50, (rows, columns), generator=torch.Generator().manual_seed(0)).float().to(device)
    torch.testing.assert_close(sums.sum_rows(partials), partials.sum(0), rtol=0, atol=0)


def test_columns_beyond_those_asked_for_do_not_count(device):
    partials = torch.full((9, sums.row_length(21)), torch.nan, device=device)
    partials[:, :21] = 1.0
    torch.testing.assert_close(sums.sum_rows(partials, 21), torch.full((21,), 9.0, device=device), rtol=0, atol=0)


def test_sums_are_bitwise_repeatable_and_precise(device):
    partials = torch.randn(700, 37, generator=torch.Generator().manual_seed(0)).to(device)
    first, again = sums.sum_rows(partials), sums.sum_rows(partials)
    assert torch.equal(first, again)
    bound = 2.0**-20 * partials.abs().sum(0)
    assert ((first - partials.double().sum(0)).abs() <= bound).all()
