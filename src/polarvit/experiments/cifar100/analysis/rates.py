"""How far heads look: what became of the rates of the positional encoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from polarvit.models import VisionModel
from polarvit.nn.position import NoShift, PositionalEncoding


def learned_rates(model: VisionModel) -> dict[str, Any] | None:
    """Sizes of the rates from row to row and from column to column, [block][head]; None for a model without.

    The sign of a rate is of no consequence: a head that shifts the other way sees the mirrored image of the same.
    A head counts as blind along an axis below 1/4 of a unit over the whole image.
    """
    encodings = [module for module in model.modules() if isinstance(module, PositionalEncoding)]
    if not encodings or any(isinstance(encoding, NoShift) for encoding in encodings):
        return None
    rates = np.abs(np.stack([encoding.rate.detach().cpu().numpy() for encoding in encodings]))
    told = getattr(model.config, "rate", None)
    blind = rates < 0.25
    return {
        "rows": rates[..., 0].round(3).tolist(),
        "columns": rates[..., 1].round(3).tolist(),
        "start": encodings[0].first_rate if told is None else told,
        "blind_to_both": float(blind.all(-1).mean()),
        "blind_to_one": float((blind.any(-1) & ~blind.all(-1)).mean()),
        "median": float(np.median(rates)),
        "largest": float(rates.max()),
    }
