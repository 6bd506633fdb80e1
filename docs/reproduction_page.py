"""Write docs/reproduction.md from the catalogue of experiments and the records in results/."""

from __future__ import annotations

from pathlib import Path

from polarvit.experiments.listing import markdown

PAGE = Path(__file__).parent / "reproduction.md"
RESULTS = Path(__file__).parent.parent / "results"
INTRODUCTION = """\
# Every table and figure of the paper

The paper's values beside ours, read from the records in `results/`, with the day and the machine of the measurement; or
"not yet run" and what a run would take. GPU hours are estimates for one H200. `polarvit reproduce --list` prints the
same. This page is written by `python docs/reproduction_page.py`; to add an experiment see
`src/polarvit/experiments/registry.py`.
"""


def page() -> str:
    """The page of this version and these records."""
    return f"{INTRODUCTION}\n{markdown(RESULTS)}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
