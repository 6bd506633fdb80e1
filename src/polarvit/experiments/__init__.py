"""One file or folder for each table and figure of the paper: it measures, prints ours beside the paper's, writes JSON.

Importing this module does not import torch; an experiment's code is loaded when it runs.
"""

from polarvit.experiments.registry import EXPERIMENTS, Experiment, Settings

__all__ = ["EXPERIMENTS", "Experiment", "Settings"]
