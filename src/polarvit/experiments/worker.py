"""One run in a process of its own: `python -m polarvit.experiments.worker FOLDER [DEVICE]`.

The folder holds the recipe; the run resumes where it stands. The worker ends, saved, when it is told to (SIGTERM) and
when whoever started it is gone: its standard input closes then. Exit codes: 0 finished, or diverged and said so in the
folder; 130 stopped and saved; anything else is a failure.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

STOPPED = 130


def main(folder: Path, device: str | None) -> int:
    """Train the recipe in `folder` to its end, or until told to stop."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    from polarvit.experiments.runs import attempt
    from polarvit.experiments.same_run import RECIPE
    from polarvit.training import Interrupted, load

    try:
        attempt(load(folder / RECIPE), folder, device, quiet=True)
    except Interrupted as stopped:
        print(stopped, flush=True)
        return STOPPED
    return 0


def end_with_parent() -> None:
    """Ask this process to stop once nobody holds the other end of its standard input."""
    while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
