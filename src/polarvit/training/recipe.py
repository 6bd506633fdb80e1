"""A recipe: everything that decides a training run, in one YAML file.

    polarvit recipes list              the recipes that ship with the package
    polarvit recipes show digits       one of them
    polarvit recipes keys              every key, with its default
    polarvit train digits --set optim.lr=1e-3

Lengths are counted in optimizer steps, never in epochs. A file may start from another with `base: name`: its own keys
replace those of the base, group by group.
"""

from __future__ import annotations

import copy
import difflib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from polarvit.data.augment.config import Augmentation
from polarvit.models.registry import entry
from polarvit.training.settings import SettingsError, build, plain

Precision = Literal["fp64", "fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class Model:
    """Which network: a registered name, fields of its config to change, and weights to start from."""

    name: str
    """A registered model; `polarvit models` lists them."""
    options: dict[str, Any] = field(default_factory=dict)
    """Config fields of the model, e.g. {img_size: 32, patch_size: 4}; the number of classes comes from the data."""
    pretrained: str | None = None
    """A weight tag, folder or hub id to start from; the classifier is replaced if the classes differ."""
    calibrate: bool = True
    """Set layer scales and head gains on the first batch (Polar-ViT, Lorentz ViT; not when starting from weights)."""

    def __post_init__(self) -> None:
        kind = type(entry(self.name.partition(".")[0]).config)
        config = build(kind, self.options, "model.options")
        object.__setattr__(self, "options", {key: getattr(config, key) for key in self.options})


@dataclass(frozen=True)
class Data:
    """Which images."""

    path: str
    """A folder of `polarvit data prepare`, a folder of class folders (streamed), `digits` or `discs` (built-in)."""
    train: str = "train"
    """Split to train on."""
    validation: str | None = "test"
    """Split to evaluate on; null: none."""
    holdout: float = 0.0
    """Share of every class of the training split that is evaluated instead of `validation`, not trained on: the same
    images in every run, to choose settings without looking at the test split."""
    test: str | None = None
    """Split to measure once, at the end, with the weights that are kept; null: none."""
    workers: int = 4
    """Processes that decode images when they are streamed from files."""
    resident: bool = True
    """Keep packed images in the memory of the device."""
    resize: int | None = None
    """Evaluation resizes the shorter side to this before the central crop."""

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must be at least 0 and below 1, got {self.holdout}")
        if self.workers < 0:
            raise ValueError(f"workers must not be negative, got {self.workers}")

    @property
    def evaluated(self) -> str | None:
        """What is evaluated during training, in words."""
        return f"{self.train}, {self.holdout:.0%} held out" if self.holdout else self.validation


@dataclass(frozen=True)
class Optim:
    """Riemannian AdamW and its schedule."""

    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.05
    """Decoupled decay, times the learning rate; scales, gains and biases are not decayed."""
    decay_tables: bool = False
    """Whether learned position tables (and the class token of Euclidean models) decay too, as in HexFormer's code."""
    decay_gains: bool = False
    """Whether what is otherwise spared (gains, biases, rates, temperatures) decays too, as in HexFormer's code."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the first and second moments."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    warmup: int = 0
    """Steps of linear warm-up."""
    warmup_lr: float = 1e-6
    """Learning rate at step 0 of the warm-up."""
    final_lr: float = 1e-6
    """Learning rate at the last step."""
    clip: float | None = None
    """Largest norm of the gradient; null: no clipping."""
    arithmetic: Literal["polar", "ambient"] = "polar"
    """How learned points move and decay: in polar form, or in ambient coordinates as published, which fails far out."""

    def __post_init__(self) -> None:
        for name in ("lr", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("weight_decay", "warmup", "warmup_lr", "final_lr"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be at least 0 and below 1, got {list(self.betas)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive, or null for no clipping, got {self.clip}")


@dataclass(frozen=True)
class Train:
    """The loop."""

    steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 128
    """Images in one optimizer step, of all processes together."""
    accumulate: int = 1
    """Parts into which each process cuts its share of a batch to save memory; the gradient is the same."""
    precision: Precision = "tf32"
    """Matrix products: fp64, fp32 (strict), tf32, or bf16 autocast. Geometry is float32 in all but fp64."""
    seed: int = 0
    """Seed of the weights, the order of the data, its augmentation and stochastic depth."""
    compile: bool = False
    """Compile the blocks of the model and, on a GPU, the step of its points."""
    cuda_graph: bool = False
    """Capture the whole step in a CUDA graph (one GPU, fixed shapes)."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights, evaluated and saved beside them; null: none."""
    grad_checkpointing: bool = False
    """Recompute blocks in backward to save memory."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must be between 0 and 1, got {self.ema}")


@dataclass(frozen=True)
class Watch:
    """What is written on the way, and when."""

    log_every: int = 50
    """Steps between lines of the log."""
    eval_every: int = 1000
    """Steps between evaluations; the last step is always evaluated."""
    eval_batch: int = 512
    """Images in one evaluation batch, of all processes together."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; the last step is always saved."""
    keep: int = 2
    """Checkpoints kept beside the best one."""
    keep_best: bool = False
    """Save whenever an evaluation is the best so far, and end with the weights of that step, not of the last."""
    drop_last: bool = False
    """Segmentation: leave an incomplete last batch out of the soft Dice, as the Hyperbolic U-Net benchmark does."""
    shard_mb: int = 500
    """Largest file of a checkpoint."""
    tensorboard: bool = False
    """Write TensorBoard files beside the log (extra `tensorboard`)."""
    wandb: str | None = None
    """Project name for Weights & Biases (extra `wandb`)."""

    def __post_init__(self) -> None:
        for name in ("log_every", "eval_every", "eval_batch", "checkpoint_every", "keep", "shard_mb"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True)
class Recipe:
    """One training run."""

    title: str
    """One line for people: which model on which data."""
    model: Model
    """The network."""
    data: Data
    """The images."""
    augment: Augmentation = field(default_factory=Augmentation)
    """What is done to a training image."""
    optim: Optim = field(default_factory=Optim)
    """The optimizer and its schedule."""
    train: Train = field(default_factory=Train)
    """The loop."""
    watch: Watch = field(default_factory=Watch)
    """Logs, evaluations and checkpoints."""

    def __post_init__(self) -> None:
        if self.task == "segmentation" and self.train.accumulate > 1:
            raise ValueError(
                "train.accumulate must be 1 for segmentation: the Dice of a batch is not that of its parts"
            )
        if self.watch.keep_best and self.data.evaluated is None:
            raise ValueError("watch.keep_best needs data.validation")

    @property
    def task(self) -> str:
        """What the model is for: "classification" or "segmentation"."""
        return entry(self.model.name.partition(".")[0]).model.task


def shipped() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(str(resources.files("polarvit"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read(source: str | Path) -> dict[str, Any]:
    """The data of a recipe by shipped name or file path, merged onto that of its `base`."""
    return _read(find(source), ())


def find(source: str | Path, beside: Path | None = None) -> Path:
    """The file of a recipe: a shipped name, or a path (of a base: relative to the file that names it)."""
    known = shipped()
    path = known.get(str(source), (beside or Path()) / source)
    if not path.is_file():
        near = difflib.get_close_matches(str(source), known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "`polarvit recipes list` names the shipped ones"
        raise SettingsError(f"no recipe '{source}': not a file, and {hint}")
    return path


def _read(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in below:
        names = " -> ".join(each.name for each in (*below, path.resolve()))
        raise SettingsError(f"{path.name}: its bases go round in a circle: {names}")
    try:
        values = from_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path.name}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"{path.name}: expected a mapping of settings")
    if "base" not in values:
        return values
    base = values.pop("base")
    if not isinstance(base, str):
        raise SettingsError(f"{path.name}: base must be the name or the path of a recipe, got {base!r}")
    return merge(_read(find(base, path.parent), (*below, path.resolve())), values)


class _Loader(yaml.SafeLoader):
    """Without aliases: a few hundred bytes of them can stand for more than a memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(
                None, None, "aliases are not read: write the value out, or name a recipe as base", mark
            )
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def from_yaml(text: str) -> Any:
    """Plain data; nothing in the text is executed."""
    return yaml.load(text, _Loader)


def merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """`base` with `values` on top: mappings are merged key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in values.items():
        before = base.get(key)
        merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def load(source: str | Path, overrides: list[str] | None = None) -> Recipe:
    """A recipe by shipped name or path, with `key.path=value` overrides; what is wrong in the file names the file."""
    path = find(source)
    written = _read(path, ())
    values = copy.deepcopy(written)
    for override in overrides or []:
        apply(values, override)
    try:
        return build(Recipe, values)
    except SettingsError as error:
        raise SettingsError(f"{path.name}: {error}" if _complaint(written) == str(error) else str(error)) from error


def _complaint(values: dict[str, Any]) -> str | None:
    """What is wrong with recipe data, if anything."""
    try:
        build(Recipe, values)
    except SettingsError as error:
        return str(error)
    return None


def apply(values: dict[str, Any], override: str) -> None:
    """Set one `key.path=value` in recipe data; the value is read as YAML."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise SettingsError(f"--set takes key.path=value, got '{override}'")
    try:
        value = from_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"--set {path}: '{text}' is not a YAML value") from error
    *parents, last = path.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise SettingsError(f"--set {path}: '{parent}' is not a group of settings")
    values[last] = value


def dump(recipe: Recipe) -> str:
    """A recipe as YAML, every setting written out."""
    return yaml.dump(plain(recipe), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
