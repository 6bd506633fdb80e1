"""CUDA graphs in the tests of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def assert_a_graph_gives_the_same(step: Callable[[], Sequence[Tensor]]) -> None:
    """What `step` returns, captured and replayed, is to the last bit what it returns when called."""
    eager = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.cuda.synchronize()
    for ours, theirs in zip(captured, eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
