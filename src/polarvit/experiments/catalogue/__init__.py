"""Every table and figure of the paper, in its order, with the paper's values: the place to declare an experiment."""

from polarvit.experiments.catalogue.ablations import ABLATIONS
from polarvit.experiments.catalogue.accuracy import ACCURACY
from polarvit.experiments.catalogue.arithmetic import ARITHMETIC
from polarvit.experiments.catalogue.cifar100 import CIFAR100
from polarvit.experiments.catalogue.segmentation import SEGMENTATION
from polarvit.experiments.catalogue.systems import SYSTEMS

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (*ACCURACY, *CIFAR100, *ABLATIONS, *ARITHMETIC, *SYSTEMS, *SEGMENTATION)
}

__all__ = ["EXPERIMENTS"]
