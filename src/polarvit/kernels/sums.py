"""Sums over programs: a kernel leaves one row of partial gradients for each of its programs, and these are added up.

All partial sums of an operator lie side by side in one buffer [programs, columns], so one launch adds up everything.
The order of the additions is fixed by the shape: no atomics, bitwise repeatable.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 16
"""Columns of one program: 64 bytes of a row, so every sector of the memory is read once."""


@triton.jit
def sum_rows_kernel(partials, out, P, C, STRIDE, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < C
    lanes = tl.arange(0, ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, P, ROWS):
        rows = start + lanes
        mask = (rows < P)[:, None] & inside[None, :]
        total += tl.load(partials + rows[:, None].to(tl.int64) * STRIDE + columns[None, :], mask=mask, other=0.0)
    tl.store(out + columns, tl.sum(total, 0), mask=inside)


def row_length(columns: int) -> int:
    """Columns to reserve for a row of partial sums: the next multiple of 16, so that its loads are 16 bytes wide."""
    return triton.cdiv(columns, COLUMNS) * COLUMNS


def sum_rows(partials: Tensor, columns: int | None = None) -> Tensor:
    """Sums over the rows of a contiguous float32 tensor [P, C], of all columns or the first so many, in one launch.

    Made for hundreds of rows and up to a few thousand columns; fastest where C is a multiple of 16 (`row_length`).
    """
    rows, stride = partials.shape
    columns = stride if columns is None else columns
    out = torch.empty((columns,), dtype=torch.float32, device=partials.device)
    sum_rows_kernel[(triton.cdiv(columns, COLUMNS),)](
        partials, out, rows, columns, stride,
        ROWS=min(256, triton.next_power_of_2(rows)), COLUMNS=COLUMNS, num_warps=8,
    )  # fmt: skip
    return out
