"""One file or folder for each table and figure of the paper: it measures, prints ours beside the paper's, writes JSON.

Importing this module does not import torch; an experiment's code is loaded when it runs.
"""

from polarvit.experiments.catalogue import EXPERIMENTS
from polarvit.experiments.registry import Experiment, Row, Settings

__all__ = ["EXPERIMENTS", "Experiment", "Row", "Settings"]
