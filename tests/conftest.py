"""Every test module starts with Triton's interpreter chosen where there is no GPU, and with one thread."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # must stand before the first import of triton
torch.set_num_threads(1)
