"""Every test module starts with Triton's interpreter chosen where there is no GPU, and with one thread.

Tests marked `full_size` run with `--full-size` only.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # must stand before the first import of triton
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-size", action="store_true", help="also the tests of full-size models that need no GPU but minutes each"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full-size"):
        for item in items:
            if item.get_closest_marker("full_size"):
                item.add_marker(pytest.mark.skip(reason="up to minutes on a CPU: needs --full-size"))
