"""What HexFormer's defect costs: its optimizer clamps every key weight to [0.05, 9] after each step.

The published code groups parameters by their names, and `.k` was meant to find curvatures. Both rows are the same
model, recipe and seeds; only the clamp differs. The published accuracy is that of a clamped one, if it was run as
released, but not of this one: its last norm is over the class tokens of a batch, everything decays, and it has no
warm-up.
"""

from __future__ import annotations

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, study

HEXFORMER, CLAMP = "cifar100_hexformer_tiny", "model.options.clamped_keys=true"
ROWS = (
    Row("sound", "HexFormer-Tiny, keys free", HEXFORMER, run="hexformer_tiny"),
    Row("clamped", "HexFormer-Tiny, keys clamped", HEXFORMER, (CLAMP,), run="hexformer_tiny_clamped"),
)


def run(settings: Settings) -> list[str]:
    """Train both, print the table, write `hexformer-defect.json`; returns the rows that diverged."""
    note = "The paper reports 75.65 ± 0.43 at 117,100 steps, taken from HexFormer's own publication."
    title, records = "HexFormer's key clamp, CIFAR-100", settings.out / FOLDER
    return study("hexformer-defect", title, ROWS, settings, note=note, records=records, folder=FOLDER)
