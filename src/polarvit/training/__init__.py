"""Training: recipes, the loop, checkpoints, evaluation, logs, several processes."""

from polarvit.training.evaluate import Scores, score_images
from polarvit.training.loop import Interrupted, Trainer, train
from polarvit.training.recipe import Recipe, load
from polarvit.training.segmentation import MaskScores
from polarvit.training.settings import SettingsError

__all__ = ["Interrupted", "MaskScores", "Recipe", "Scores", "SettingsError", "Trainer", "load", "score_images", "train"]
