"""What the benchmarks must show on one H200, and whether they do.

A bar is a limit that must hold and an aim to work towards. It belongs to one exact setting; any other setting has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polarvit.tables import console, table


@dataclass(frozen=True)
class Bar:
    """At most `limit`; `aim` is where the work goes."""

    limit: float
    aim: float | None = None

    def verdict(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        if value > self.limit:
            return "missed"
        return "holds" if self.aim is None or value > self.aim else "holds, aim reached"


STEP: dict[tuple[str, int, int, int, str], Bar] = {
    ("tiny", 32, 4, 128, "tf32"): Bar(1.5, 1.2),
    ("tiny", 32, 4, 128, "fp32"): Bar(1.5, 1.2),
    ("tiny", 32, 4, 128, "bf16"): Bar(2.0, 1.3),
    ("small", 224, 16, 64, "tf32"): Bar(1.6, 1.3),
}
"""Time of Polar-ViT over its Euclidean twin, by (model, image, patch, batch, precision)."""

STEP_MEMORY = {key: Bar(1.5, 1.1) for key in STEP if key[0] == "tiny"}
"""Peak memory of a step over the twin's."""

COLD_START = Bar(60.0, 30.0)
"""Seconds from the start of a process to its first training step, compiler caches empty."""

ATTENTION = {(128, 12, 64, 16): Bar(2.0, 1.3), (64, 6, 196, 64): Bar(2.0, 1.3)}
"""Attention core forward and backward over float32 SDPA, by (B, H, N, d)."""

ATTENTION_MEMORY = {(1, 12, 16384, 64): Bar(2048.0)}
"""MiB that attention needs beyond its inputs and their gradients' upstream, by (B, H, N, d)."""

ATTENTION_GROWTH = Bar(2.1)
"""Factor of that memory when N doubles to 16,384: 2 is linear."""


@dataclass(frozen=True)
class Claim:
    """A measured number beside its bar."""

    case: str
    value: float | None
    bar: Bar
    unit: str = ""

    def record(self, judged: bool) -> dict[str, Any]:
        verdict = self.bar.verdict(self.value) if judged else "not judged"
        return {"case": self.case, "value": self.value, "bar": self.bar.limit, "aim": self.bar.aim, "verdict": verdict}


def show(claims: Sequence[Claim], judged: bool) -> None:
    """The bars beside what was measured. Without a GPU nothing is judged."""
    if not claims:
        return
    rows = []
    for claim in claims:
        record = claim.record(judged)
        value, limit, aim = (
            "-" if x is None else f"{x:,.2f}{claim.unit}" if x < 100 else f"{x:,.0f}{claim.unit}"
            for x in (claim.value, claim.bar.limit, claim.bar.aim)
        )
        rows.append([claim.case, value, f"<= {limit}", aim, record["verdict"]])
    title = "Bars (for one H200)" if judged else "Bars (for one H200; this run has no GPU and judges nothing)"
    console().print(table(title, ["case", "measured", "bar", "aim", "verdict"], rows, text=["verdict"]))
