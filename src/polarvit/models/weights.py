"""Weights in and out: safetensors and a JSON config, checked before anything is believed.

A folder of weights holds `model.safetensors`, `config.json` and a model card. The config has the architecture's name,
every config field, the preprocessing, a format version and, where they are known, the names of the classes and, of a
segmentation, how images are made square. Nothing in such a folder is ever executed: there is no pickle to fall back to,
and every key, shape and config field must be the expected one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import huggingface_hub
import torch
from huggingface_hub import PyTorchModelHubMixin
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from polarvit.files import put, put_text
from polarvit.models.class_names import checked_names
from polarvit.models.model_card import MARK, model_card

if TYPE_CHECKING:
    from polarvit.models.base import VisionModel
    from polarvit.models.config import ImageConfig

FORMAT_VERSION = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
PACKAGED = Path(__file__).parent / "pretrained"
"""Folders named by tag, and `index.json`: tag -> sha256 of its `model.safetensors`."""
MEANT = {"polar_vit_tiny": "polar_vit_tiny.cifar100"}
"""The tag that a bare architecture means where it has several of one data set: that of the paper's recipe."""

ADAPTABLE = ("img_size", "num_classes", "dropout", "drop_path", "drop_path_schedule", "momentum", "implementation")
"""Config fields that may differ from those the weights were trained with; the others are the network they belong to,"""
DRAWN = (
    *("position_std", "time_init", "target_radius", "calibration"),
    *("rate", "rate_spread", "temperature", "alpha"),
)
"""or only say how fresh weights are drawn, which trained ones are past."""

_CONFIG_KEYS = {"format_version", "architecture", "config", "preprocessing"}
_OPTIONAL_KEYS = {"class_names", "padding"}
_PADDINGS = ("zeros", "minimum")
_PREPROCESSING = {"mean", "std", "interpolation", "crop_pct"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class WeightsError(ValueError):
    """Weights that cannot be found, read or fitted, and why."""


class Pretrained(PyTorchModelHubMixin, library_name="polarvit", license="apache-2.0"):
    """`save_pretrained`, `from_pretrained` and `push_to_hub` of huggingface_hub, strict."""

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, *, config: None = None, model_card_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Write weights, config and model card to a folder, each file whole or not at all; keep a card somebody wrote.

        The config is always the model's own: `config`, which huggingface_hub's `push_to_hub` passes, must be None.
        """
        if config is not None:
            raise WeightsError("save_pretrained: the config is the model's own and cannot be replaced")
        model = cast("VisionModel", self)
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        metadata = {"format": "pt", "architecture": model.architecture, "format_version": str(FORMAT_VERSION)}
        put(folder / WEIGHTS, lambda path: save_file(state, path, metadata))
        text = json.dumps(describe(model), indent=2) + "\n"
        put_text(folder / CONFIG, text)
        if not (folder / CARD).exists() or MARK in (folder / CARD).read_text(encoding="utf-8"):
            card = model_card(model, **(model_card_kwargs or {}))
            put_text(folder / CARD, card)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """The model of a packaged tag, a local folder or a hub repository; `options` as in `load_pretrained`."""
        model = load_pretrained(pretrained_model_name_or_path, **options)
        if not isinstance(model, cls):
            raise WeightsError(
                f"{pretrained_model_name_or_path}: holds a {type(model).__name__} ({model.architecture}), "
                f"expected a {cls.__name__}"
            )
        return model


def load_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    **overrides: Any,
) -> VisionModel:
    """The model `name` with its weights, in evaluation mode: a packaged tag, else a local folder, else a hub id.

    `overrides` are config fields, of which `ADAPTABLE` may differ from the stored ones. Another `num_classes` leaves
    the stored classifier out and says so; another `img_size` resizes a learned position table. A bare architecture
    means its only packaged tag, or the one of several that `MEANT` names, and says which it took.
    """
    from polarvit.models.registry import model_class

    options = {"revision": revision, "token": token, "cache_dir": cache_dir}
    folder = find(str(name), force_download=force_download, local_files_only=local_files_only, **options)
    if folder.parent == PACKAGED and str(name) == folder.name.partition(".")[0]:
        warnings.warn(f"{name}: these are the weights {folder.name}", stacklevel=3)
    described = read_config(folder / CONFIG)
    cls = model_class(described["architecture"])
    if cls is None:
        raise WeightsError(f"{folder / CONFIG}: unknown architecture {described['architecture']!r}")
    try:
        stored = cls.config_class.from_saved(described["config"])
        names = checked_names(described["class_names"], stored.num_classes) if "class_names" in described else None
    except ValueError as error:
        raise WeightsError(f"{folder / CONFIG}: {error}") from error
    config = adapted(str(name), stored, overrides)
    state = read_weights(folder / WEIGHTS, described["architecture"])
    check_fit(state, lambda: cls(stored), str(folder / WEIGHTS))
    model = cls(config)
    model.default_cfg["architecture"] = described["architecture"]
    model.default_cfg.update(read_preprocessing(folder / CONFIG, described["preprocessing"], stored.in_chans))
    if "padding" in described:
        model.default_cfg["padding"] = described["padding"]
    if config.grid != stored.grid:
        model.resize_positions(state, stored.grid)
    fresh: set[str] = set()
    if config.num_classes != stored.num_classes:
        new = f"; the one for {config.num_classes} starts fresh" if config.num_classes else ""
        warnings.warn(f"{name}: its classifier of {stored.num_classes} classes was left out{new}", stacklevel=3)
        state = {key: tensor for key, tensor in state.items() if not key.startswith("head.")}
        fresh = {f"head.{key}" for key in model.get_classifier().state_dict()}
        names = None
    model.class_names = names
    fill(model, state, fresh, str(folder / WEIGHTS))
    return model.eval()


def adapted(name: str, stored: ImageConfig, overrides: dict[str, Any]) -> ImageConfig:
    """The stored config with what may be overridden; another network is an error, what is past a warning."""
    was, asked = stored.to_dict(), type(stored).from_dict({**stored.to_dict(), **overrides}).to_dict()
    for key in [key for key in was if key not in ADAPTABLE and asked[key] != was[key]]:
        if key not in DRAWN:
            raise WeightsError(
                f"{name}: its weights belong to a network with {key} {was[key]!r}, got {asked[key]!r}; "
                f"only {', '.join(key for key in ADAPTABLE if key in was)} may differ"
            )
        warnings.warn(f"{name}: {key} says how fresh weights are drawn; these stay as they are", stacklevel=4)
        asked[key] = was[key]
    return type(stored).from_dict(asked)


def find(name: str, **options: Any) -> Path:
    """The folder with config and weights: packaged tag, local folder, or downloaded from the hub, in this order."""
    tag = packaged_tag(name)
    if tag is not None:
        return _verified(tag)
    if Path(name).is_dir():
        for file in (CONFIG, WEIGHTS):
            if not (Path(name) / file).is_file():
                raise WeightsError(f"{name}: the folder has no {file}")
        return Path(name)
    if _HUB_ID.fullmatch(name):
        return _download(name, **options)
    from polarvit.models.registry import list_models

    if name in list_models():
        there = ", ".join(list_pretrained()) or "there are none yet"
        raise WeightsError(f"no weights of '{name}' come with the package ({there}); a folder or a hub id has others")
    raise WeightsError(
        f"'{name}' is not a packaged tag ({', '.join(list_pretrained()) or 'there are none yet'}), "
        "not a folder, and not a hub id like 'owner/name'"
    )


def list_pretrained() -> list[str]:
    """Tags whose weights come with the package."""
    return sorted(_index())


def packaged_tag(name: str) -> str | None:
    """The packaged tag that `name` means; a bare architecture means its only tag, or the one named in `MEANT`."""
    tags = list_pretrained()
    if name in tags:
        return name
    if MEANT.get(name) in tags:
        return MEANT[name]
    own = [tag for tag in tags if tag.partition(".")[0] == name]
    if len(own) > 1:
        raise WeightsError(f"'{name}' has several weights, say which: {', '.join(own)}")
    return own[0] if own else None


def describe(model: VisionModel) -> dict[str, Any]:
    """What `config.json` holds."""
    cfg, names = model.default_cfg, model.class_names
    return {
        "format_version": FORMAT_VERSION,
        "architecture": model.architecture,
        "config": model.config.to_dict(),
        "preprocessing": {key: cfg[key] for key in ("mean", "std", "interpolation", "crop_pct")},
        **({} if names is None else {"class_names": list(names)}),
        **({"padding": cfg["padding"]} if "padding" in cfg else {}),
    }


def read_config(path: Path) -> dict[str, Any]:
    """`config.json`, with exactly the keys this version writes; names of classes and the padding may be missing."""
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(described, dict) or "format_version" not in described:
        raise WeightsError(f"{path}: no 'format_version': not a config written by polarvit")
    if described["format_version"] != FORMAT_VERSION:
        raise WeightsError(f"{path}: format version {described['format_version']!r}, expected {FORMAT_VERSION}")
    _same_keys(path, "", set(described) - _OPTIONAL_KEYS, _CONFIG_KEYS)
    for key in ("config", "preprocessing"):
        if not isinstance(described[key], dict):
            raise WeightsError(f"{path}: '{key}' must be an object, got {described[key]!r}")
    if not isinstance(described["architecture"], str):
        raise WeightsError(f"{path}: 'architecture' must be a text, got {described['architecture']!r}")
    if "padding" in described and described["padding"] not in _PADDINGS:
        raise WeightsError(f"{path}: 'padding' must be {' or '.join(_PADDINGS)}, got {described['padding']!r}")
    _same_keys(path, "preprocessing.", set(described["preprocessing"]), _PREPROCESSING)
    return described


def read_preprocessing(path: Path, values: dict[str, Any], channels: int) -> dict[str, Any]:
    """What `default_cfg` says of the images: one mean and one standard deviation a channel, interpolation, crop."""

    def number(value: Any, least: float, most: float = 1e6) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

    def numbers(value: Any, least: float) -> bool:
        return isinstance(value, list) and len(value) == channels and all(number(x, least) for x in value)

    wanted = {
        "mean": (f"{channels} numbers", numbers(values["mean"], -1e6)),
        "std": (f"{channels} positive numbers", numbers(values["std"], sys.float_info.min)),
        "interpolation": ("a text", isinstance(values["interpolation"], str)),
        "crop_pct": ("a positive number", number(values["crop_pct"], sys.float_info.min)),
    }
    for key, (expected, fits) in wanted.items():
        if not fits:
            raise WeightsError(f"{path}: preprocessing.{key} must be {expected}, got {values[key]!r}")
    return {**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])}


def read_weights(path: Path, architecture: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file that was written for `architecture`."""
    try:
        with safe_open(path, framework="pt") as file:
            written_for = (file.metadata() or {}).get("architecture")
            if written_for != architecture:
                raise WeightsError(f"{path}: holds weights of {written_for}, the config is that of {architecture}")
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - a file, not a dict
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: truncated or not a safetensors file ({error})") from error


def fill(model: VisionModel, state: dict[str, Tensor], fresh: set[str], source: str) -> None:
    """Copy `state` into the model, in the file's dtype: same keys (but for those left `fresh`), same shapes."""
    expected = {key: tensor for key, tensor in model.state_dict().items() if key not in fresh}
    _same_shapes(state, expected, source)
    whole = {key for key, tensor in expected.items() if not tensor.is_floating_point()}  # counters of batch norms
    dtypes = {tensor.dtype for key, tensor in state.items() if key not in whole}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_floating_point:
        raise WeightsError(f"{source}: expected one floating dtype, got {', '.join(sorted(map(str, dtypes)))}")
    model.to(next(iter(dtypes))).load_state_dict({**model.state_dict(), **state})


def check_fit(state: dict[str, Tensor], network: Callable[[], nn.Module], source: str) -> None:
    """Raise unless the weights are those of this network, which takes no memory, whatever sizes its config names."""
    with torch.device("meta"):
        expected = network().state_dict()
    _same_shapes(state, expected, source)


def _same_shapes(state: dict[str, Tensor], expected: dict[str, Tensor], source: str) -> None:
    """Raise unless both have the same keys with the same shapes."""
    _same_keys(source, "", set(state), set(expected))
    for key, tensor in state.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(f"{source}: {key} has shape {list(tensor.shape)}, expected {list(expected[key].shape)}")


def _same_keys(source: str | Path, prefix: str, found: set[str], expected: set[str]) -> None:
    for what, keys in (("unknown", found - expected), ("missing", expected - found)):
        if keys:
            listed = ", ".join(prefix + key for key in sorted(keys)[:5]) + (", ..." if len(keys) > 5 else "")
            raise WeightsError(f"{source}: {what} {'key' if len(keys) == 1 else 'keys'} {listed}")


def _index() -> dict[str, str]:
    return json.loads((PACKAGED / "index.json").read_text(encoding="utf-8"))


def _verified(tag: str) -> Path:
    folder, wanted = PACKAGED / tag, _index()[tag]
    try:
        found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    except OSError as error:
        raise WeightsError(f"{tag}: listed, but its weights are not installed ({error})") from error
    if found != wanted:
        raise WeightsError(f"{tag}: sha256 of {WEIGHTS} is {found}, expected {wanted}")
    return folder


def _download(name: str, **options: Any) -> Path:
    if not huggingface_hub.constants.ENDPOINT.startswith("https://"):
        raise WeightsError(
            f"{name}: the hub must be reached by https, HF_ENDPOINT is {huggingface_hub.constants.ENDPOINT}"
        )
    paths = []
    for file in (CONFIG, WEIGHTS):
        try:
            paths.append(Path(huggingface_hub.hf_hub_download(name, file, **options)))
        except HFValidationError as error:
            raise WeightsError(f"'{name}' is neither a folder nor a hub id ({error})") from error
        except LocalEntryNotFoundError as error:
            raise WeightsError(f"{name}: {file} is not cached and the hub cannot be reached ({error})") from error
        except EntryNotFoundError as error:
            raise WeightsError(f"{name}: the repository has no {file}; only safetensors are read") from error
        except HfHubHTTPError as error:
            raise WeightsError(f"{name}: not available on the hub ({error})") from error
    return paths[0].parent
