"""Typed configurations: every part of a network is a named choice, so a row of an ablation is a config.

`docs/models.md` has the table of choices the paper leaves open, with these defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, Self

PositionTable = Literal["learned", "sincos", "none"]
Readout = Literal["centroid", "class_token"]
Rule = Literal[
    "anchored", "anchored_0.1", "anchored_0.2", "free_power", "affine_klein", "affine_direction", "sigmoid",
    "hard_bound", "lorentz",
]  # fmt: skip


POSITIVE = {
    *("in_chans", "patch_size", "depth", "dim", "mlp_dim", "heads", "width", "levels"),
    *("k", "temperature", "target_radius", "rate_spread"),
}
NOT_NEGATIVE = {"num_classes", "norm_eps", "position_std"}
"""Fields of any config with a lower bound; every number is finite."""
LARGEST = {
    **dict.fromkeys(("in_chans", "depth"), 1_000),
    **dict.fromkeys(("dim", "mlp_dim", "heads", "width"), 100_000),
    "patch_size": 10_000,
    "levels": 12,
    "num_classes": 1_000_000,
}
"""Upper bounds: a config may come with weights of a stranger, and is built before they are compared."""
LARGEST_IMAGE, LARGEST_TABLE, LARGEST_NUMBER = 10_000, 10**9, 1e12
"""The same for sides of images, for the numbers of a position table, and for every other number."""
FORMER_DEFAULTS: dict[str, Any] = {"calibration": "offset"}
"""Defaults that were others once, as they were when configs were saved and runs begun that do not name the field."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What every network here has: the images it takes and the classes it gives."""

    img_size: int | tuple[int, int] = 32
    in_chans: int = 3
    num_classes: int = 1000

    def __post_init__(self) -> None:
        name = type(self).__name__
        if isinstance(self.img_size, list):
            object.__setattr__(self, "img_size", tuple(self.img_size))
        if min(self.image) < 1:
            raise ValueError(f"{name}: img_size must be positive, got {self.img_size}")
        if max(self.image) > LARGEST_IMAGE:
            raise ValueError(f"{name}: img_size must be at most {LARGEST_IMAGE}")
        for key, value in vars(self).items():
            most = LARGEST.get(key, LARGEST_NUMBER)
            if isinstance(value, int | float) and abs(value) > most:
                wanted = f"at most {most:g}" if key in LARGEST else "finite"
                raise ValueError(f"{name}: {key} must be {wanted}, got {value!r:.40}")
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name}: {key} must be finite, got {value}")
            if key in POSITIVE and value is not None and value <= 0:
                raise ValueError(f"{name}: {key} must be positive, got {value}")
            if key in NOT_NEGATIVE and value < 0:
                raise ValueError(f"{name}: {key} must be 0 or more, got {value}")
        for field, choices in literal_fields(type(self)).items():
            if getattr(self, field) not in choices:
                raise ValueError(f"{name}: {field} must be one of {', '.join(choices)}, got {getattr(self, field)!r}")

    @property
    def image(self) -> tuple[int, int]:
        """Height and width."""
        return (self.img_size, self.img_size) if isinstance(self.img_size, int) else self.img_size

    @property
    def grid(self) -> tuple[int, int]:
        """Places down and across that a position table would have."""
        return self.image

    @property
    def shape(self) -> str:
        """The size of the network in words."""
        raise TypeError(f"{type(self).__name__} does not describe its shape")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Strict: an unknown key or a value of another type is an error that names it; nothing is converted."""
        return cls(**checked_types(cls, checked_keys(cls, values)))

    @classmethod
    def from_saved(cls, values: dict[str, Any]) -> Self:
        """The same of a config that was saved: fields it does not name have the defaults of its time."""
        return cls.from_dict({**former_defaults(cls), **values})


@dataclass(frozen=True, kw_only=True)
class VisionConfig(ImageConfig):
    """What every vision transformer here has."""

    patch_size: int = 4
    depth: int = 9
    dim: int = 192
    mlp_dim: int = 384
    heads: int = 12
    dropout: float = 0.0
    """Dropout of attention weights."""
    drop_path: float = 0.1
    """Stochastic depth: probability that a sample skips a residual step."""
    drop_path_schedule: Literal["constant", "linear"] = "constant"
    """The same probability in every block (HexFormer's code), or growing linearly from 0 with depth."""
    position_table: PositionTable = "learned"
    position_std: float = 0.02
    """Standard deviation of a learned position table."""
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.dim % self.heads:
            raise ValueError(f"{name}: dim {self.dim} is not divisible by {self.heads} heads")
        for side in self.image:
            if side % self.patch_size:
                raise ValueError(f"{name}: img_size {self.img_size} is not divisible by patch_size {self.patch_size}")
        if self.grid[0] * self.grid[1] * self.dim > LARGEST_TABLE:
            raise ValueError(f"{name}: {self.grid[0]} x {self.grid[1]} patches of width {self.dim} are too many")
        for field in ("dropout", "drop_path"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"{name}: {field} must be in [0, 1), got {getattr(self, field)}")

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image[0] // self.patch_size, self.image[1] // self.patch_size

    @property
    def shape(self) -> str:
        return f"{self.depth} blocks, width {self.dim}, MLP {self.mlp_dim}, {self.heads} heads, patch {self.patch_size}"

    def drop_paths(self) -> list[float]:
        """Stochastic depth of each block."""
        if self.drop_path_schedule == "constant" or self.depth == 1:
            return [self.drop_path] * self.depth
        return [self.drop_path * i / (self.depth - 1) for i in range(self.depth)]


@dataclass(frozen=True, kw_only=True)
class PolarViTConfig(VisionConfig):
    """Polar-ViT. The defaults are the paper's model; where it is silent, our choice."""

    rule: Rule = "anchored"
    """Radius rule of every polar layer (`polarvit.nn.RADIUS_RULES`)."""
    position: Literal["separate", "joint", "boost", "rotary", "none"] = "separate"
    """Relative encoding of queries and keys: the paper's horoshift, the exact two-dimensional one, or a sibling."""
    rate: float | None = None
    """Initial rate rho_h of the encoding; None is 4 for a horoshift and 1 for its siblings."""
    rate_spread: float = 1.0
    """Initial rates of the heads reach from 1/rate_spread to rate_spread times `rate`."""
    token_position: float = 0.0
    """Where on both grid axes a class token stands: at 0 it is not shifted."""
    head_gain: Literal["before_shift", "after_shift"] = "before_shift"
    """Whether the gain of a head scales the radii of queries and keys before the encoding moves them, or after."""
    temperature: float = 1.0
    """Initial temperature tau_h of attention."""
    residual: Literal["boost", "exact_boost", "ambient_boost", "space"] = "boost"
    alpha: float = 0.1
    """Initial step of the boost residuals."""
    final_norm: bool = False
    """A gyro layer norm before the readout."""
    readout: Readout = "centroid"
    head: Literal["mlr", "tangent"] = "mlr"
    """Hyperbolic logistic regression, or a linear layer on the tangent space at the origin."""
    time_init: Literal["zero", "full"] = "full"
    """Whether the time column of W starts at zero or is drawn with the rest."""
    target_radius: float | None = None
    """Radius `calibrate` brings every layer to; None is sqrt(k) asinh(sqrt(n/k)), the norm's, for a width n."""
    calibration: Literal["offset", "weights"] = "weights"
    """What `calibrate` changes in a layer: W, if the radius grows with it, or the offset phi_0 with its anchor."""
    k: float = 1.0
    """Curvature is -1/k."""
    learn_k: bool = False
    implementation: Literal["auto", "triton", "reference"] = "auto"
    """Of the attention core."""


@dataclass(frozen=True, kw_only=True)
class ViTConfig(VisionConfig):
    """The Euclidean twin: pre-norm, class token, learned temperature, no bias on q, k, v."""

    readout: Literal["class_token", "mean"] = "class_token"
    plain_attention: bool = False
    """Biases on q, k and v and no temperature, as in DeiT."""


def former_defaults(cls: type) -> dict[str, Any]:
    """Those of `FORMER_DEFAULTS` that are fields of the dataclass."""
    fields = {field.name for field in dataclasses.fields(cls)}
    return {key: value for key, value in FORMER_DEFAULTS.items() if key in fields}


def literal_fields(cls: type) -> dict[str, tuple[str, ...]]:
    """Fields of a dataclass whose type is a Literal, with their choices."""
    hints = typing.get_type_hints(cls)
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


def checked_keys(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """`values` if every key is a field of the dataclass; otherwise a ValueError that suggests the nearest."""
    fields = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; expected one of {', '.join(fields)}"
            raise ValueError(f"{cls.__name__}: unknown key '{key}'{hint}")
    return values


def checked_types(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """`values` if each has the declared type of its field; otherwise a ValueError that names the field."""
    hints = typing.get_type_hints(cls)
    for key, value in values.items():
        if not _fits(value, hints[key]):
            raise ValueError(f"{cls.__name__}: {key} must be {_spell(hints[key])}, got {value!r}")
    return values


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in args
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple:  # JSON has lists
        return isinstance(value, list | tuple) and len(value) == len(args) and all(map(_fits, value, args))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(typing.get_args(hint))}"
    return getattr(hint, "__name__", str(hint)) if typing.get_origin(hint) is None else str(hint)
