"""Squared differences of all pairs: every way they are computed gives the same numbers."""

from __future__ import annotations

import pytest
import torch

from polarvit.geometry import directions
from polarvit.geometry.directions import squared_differences


@pytest.fixture
def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 7, 5, generator=generator, dtype=torch.float64)
    return x, x[..., :4, :] + 1e-9 * torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)


def test_close_pairs_keep_their_digits(pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = pairs
    torch.testing.assert_close(squared_differences(x, y), (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1))
    assert 0 < squared_differences(x, y)[..., 0, 0].max() < 1e-16


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_rows_after_one_another_give_the_same(rows: int, pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.testing.assert_close(directions._by_rows(*pairs, rows), squared_differences(*pairs), rtol=1e-13, atol=0)


@pytest.mark.parametrize("spread", [0, 2**28])
def test_compiled_code_gives_the_same(
    spread: int, pairs: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "SPREAD_OUT", spread)
    torch._dynamo.reset()
    compiled = torch.compile(squared_differences, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*pairs), squared_differences(*pairs), rtol=1e-13, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same(pairs: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "SLICE", 300)
    torch.testing.assert_close(
        squared_differences(*(x.cuda() for x in pairs)).cpu(), squared_differences(*pairs), rtol=1e-13, atol=0
    )
