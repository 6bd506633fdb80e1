"""The settings of the augmentation, one field for each thing that can be drawn."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from polarvit.data.augment.crop import Interpolation
from polarvit.data.augment.erasing import EraseMode
from polarvit.data.augment.mixing import Mixer, Partners
from polarvit.data.augment.policies import CIFAR10, IMAGENET, AutoAugment, BigVisionRandAugment, Policy, RandAugment
from polarvit.data.errors import DataError

AutoAugmentPolicy = Literal["cifar10", "imagenet"]
RandAugmentStyle = Literal["timm", "big_vision"]


@dataclass(frozen=True)
class Augmentation:
    """What happens to a training image, in this order: flip, crop, policy, normalise, erase, mix.

    The defaults do nothing but normalise to [-1, 1]. Probabilities of 0 and None switch a thing off.
    """

    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Mean colour of the data, in [0, 1]; subtracted."""
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Standard deviation of the data's colours; divided by."""

    flip: float = 0.0
    """Probability of mirroring left and right."""
    crop_padding: int = 0
    """Pixels of black around the image before a random cut of its own size (4 for CIFAR)."""

    resized_crop: bool = False
    """Cut a random part and resize it to the model's image size; in place of the padded crop."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Area of that part, as a share of the image."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width / height of that part."""
    interpolation: Interpolation = "bicubic"
    """How crops and evaluation images are resized."""

    auto_augment: AutoAugmentPolicy | None = None
    """A learned policy: the CIFAR-10 or the ImageNet one."""
    rand_augment: RandAugmentStyle | None = None
    """Random operations: as timm's "rand-m9-mstd0.5-inc1" or as big_vision's "randaug(2, 10)"."""
    rand_layers: int = 2
    """RandAugment: operations in a row."""
    rand_magnitude: float = 9.0
    """RandAugment: level 0-10."""
    rand_noise: float = 0.5
    """RandAugment (timm): standard deviation of the level."""

    erase_probability: float = 0.0
    """Probability of erasing a box of the normalised image."""
    erase_area: tuple[float, float] = (0.02, 1 / 3)
    """Area of the box, as a share of the image."""
    erase_aspect: tuple[float, float] = (0.3, 1 / 0.3)
    """Height / width of the box."""
    erase_mode: EraseMode = "pixel"
    """Fill: "pixel" is normal noise (timm), "mean" the raw channel mean (HexFormer)."""

    mixup_alpha: float = 0.0
    """MixUp: share of the image ~ Beta(alpha, alpha); 0 is off."""
    cutmix_alpha: float = 0.0
    """CutMix: share of the image ~ Beta(alpha, alpha), corrected to the pixels really kept; 0 is off."""
    mix_probability: float = 1.0
    """Probability that a step mixes at all, if one of the two is on."""
    mix_switch: float = 0.5
    """Probability of CutMix rather than MixUp when both are on."""
    mix_partners: Partners = "pairs"
    """Who mixes with whom: "pairs", each with the other (timm), or "ring", each with the next."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""

    def __post_init__(self) -> None:
        for name in ("flip", "erase_probability", "mix_probability", "mix_switch", "label_smoothing"):
            self._require(0 <= getattr(self, name) <= 1, name, "a number from 0 to 1")
        for name in ("crop_scale", "crop_ratio", "erase_area", "erase_aspect"):
            low, high = getattr(self, name)
            self._require(0 < low <= high, name, "two positive numbers, the smaller first")
        for name in ("crop_scale", "erase_area"):
            self._require(getattr(self, name)[1] <= 1, name, "shares of the image, at most 1")
        for name in ("mixup_alpha", "cutmix_alpha", "crop_padding", "rand_noise"):
            self._require(getattr(self, name) >= 0, name, "0 or more")
        for name, choices in (
            ("auto_augment", AutoAugmentPolicy),
            ("rand_augment", RandAugmentStyle),
            ("erase_mode", EraseMode),
            ("interpolation", Interpolation),
            ("mix_partners", Partners),
        ):
            allowed = [*get_args(choices), *([None] if name.endswith("augment") else [])]
            self._require(getattr(self, name) in allowed, name, f"one of {allowed}")
        self._require(len(self.mean) == 3, "mean", "three numbers")
        self._require(len(self.std) == 3 and min(self.std) > 0, "std", "three positive numbers")
        self._require(self.rand_layers >= 1, "rand_layers", "1 or more")
        self._require(0 <= self.rand_magnitude <= 10, "rand_magnitude", "a level from 0 to 10")
        self._require(not (self.resized_crop and self.crop_padding), "crop_padding", "0 when resized_crop is on")
        self._require(not (self.auto_augment and self.rand_augment), "rand_augment", "None when auto_augment is on")

    def _require(self, holds: bool, name: str, expected: str) -> None:
        assert name in {f.name for f in fields(self)}
        if not holds:
            raise DataError(f"Augmentation: {name} is {getattr(self, name)!r}, expected {expected}")

    def policy(self) -> Policy | None:
        """The policy these settings ask for."""
        if self.auto_augment:
            return AutoAugment({"cifar10": CIFAR10, "imagenet": IMAGENET}[self.auto_augment])
        if self.rand_augment == "big_vision":
            return BigVisionRandAugment(self.rand_layers, self.rand_magnitude)
        if self.rand_augment == "timm":
            red, green, blue = (min(255, round(255 * m)) for m in self.mean)
            return RandAugment(self.rand_layers, self.rand_magnitude, self.rand_noise, (red, green, blue))
        return None

    def mixer(self, height: int, width: int) -> Mixer:
        """MixUp and CutMix for images of a size."""
        return Mixer(
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            probability=self.mix_probability,
            switch=self.mix_switch,
            partners=self.mix_partners,
            height=height,
            width=width,
        )
