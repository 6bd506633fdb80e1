"""Accuracy of whole models: CIFAR, Tiny-ImageNet, ImageNet-1k and fine-tuning. Each row is a recipe.

Estimates of GPU time are for one H200, from 12,380 images/s of Polar-ViT-Tiny at 64 tokens (docs/experiments.md),
scaled by tokens and width.
"""

from polarvit.experiments.registry import TRAINING, Experiment, Row

HOME = "polarvit.experiments.accuracy"


def cifar100(row: str, label: str, paper: str) -> Row:
    """A row that `polarvit reproduce cifar100` trains."""
    return Row(row, label, paper, f"polarvit reproduce cifar100 --only {row}", "cifar100/cifar100.json")


ACCURACY = (
    Experiment(
        "main-tiny",
        "image classification from scratch, Tiny size, top-1 %, 10 seeds",
        "Table 1 (tab:main), Tiny",
        HOME,
        rows=(
            cifar100("vit_tiny", "CIFAR-100, Euclidean ViT", "74.64 ± 0.41"),
            Row("cifar100_hexformer_tiny", "CIFAR-100, HexFormer", "75.65 ± 0.43"),
            Row("cifar100_hexformer_hybrid_tiny", "CIFAR-100, HexFormer-Hybrid", "75.85 ± 0.34"),
            cifar100("none", "CIFAR-100, Polar-ViT w/o horoshift", "78.04 ± 0.53"),
            cifar100("polar_vit_tiny", "CIFAR-100, Polar-ViT", "80.15 ± 0.26"),
            Row("tiny_imagenet_vit_tiny", "Tiny-ImageNet, Euclidean ViT", "60.74 ± 0.36"),
            Row("tiny_imagenet_hexformer_tiny", "Tiny-ImageNet, HexFormer", "60.87 ± 0.64"),
            Row("tiny_imagenet_hexformer_hybrid_tiny", "Tiny-ImageNet, HexFormer-Hybrid", "62.93 ± 0.45"),
            Row("tiny_imagenet_polar_vit_tiny_none", "Tiny-ImageNet, Polar-ViT w/o horoshift", "65.12 ± 0.47"),
            Row("tiny_imagenet_polar_vit_tiny", "Tiny-ImageNet, Polar-ViT", "67.23 ± 0.32"),
        ),
        cost="0.2 (Polar-ViT) to 0.5 GPU hours (HexFormer) a seed and row on CIFAR-100, about 3 to 7 on Tiny-ImageNet",
        takes=TRAINING,
    ),
    Experiment(
        "main-base",
        "image classification from scratch, Base size, top-1 %, 10 seeds",
        "Table 1 (tab:main), Base",
        HOME,
        rows=(
            Row("cifar100_hvt_base", "CIFAR-100, HVT", "42.77"),
            Row("cifar100_lvit_base", "CIFAR-100, LViT", "69.11"),
            Row("cifar100_vit_base", "CIFAR-100, Euclidean ViT", "70.54 ± 0.38"),
            Row("cifar100_hexformer_base", "CIFAR-100, HexFormer", "76.49 ± 1.21"),
            Row("cifar100_hexformer_hybrid_base", "CIFAR-100, HexFormer-Hybrid", "76.81 ± 0.51"),
            Row("cifar100_polar_vit_base_none", "CIFAR-100, Polar-ViT w/o horoshift", "80.33 ± 0.57"),
            Row("cifar100_polar_vit_base", "CIFAR-100, Polar-ViT", "81.63 ± 0.61"),
            Row("tiny_imagenet_hvt_base", "Tiny-ImageNet, HVT", "40.12"),
            Row("tiny_imagenet_lvit_base", "Tiny-ImageNet, LViT", "53.01"),
            Row("tiny_imagenet_polar_vit_base_none", "Tiny-ImageNet, Polar-ViT w/o horoshift", "67.06 ± 0.31"),
            Row("tiny_imagenet_polar_vit_base", "Tiny-ImageNet, Polar-ViT", "68.19 ± 0.28"),
        ),
        cost="about 2.5 GPU hours a seed and row on CIFAR-100, 20 on Tiny-ImageNet",
        takes=TRAINING,
    ),
    Experiment(
        "imagenet",
        "ImageNet-1k, top-1 %, 3 seeds",
        "Table 2 (tab:imagenet)",
        HOME,
        rows=(
            Row("imagenet_vit_tiny", "Euclidean ViT, Tiny", "68.19 ± 0.21"),
            Row("imagenet_polar_vit_tiny", "Polar-ViT, Tiny", "71.68 ± 0.11"),
            Row("imagenet_vit_small", "Euclidean ViT, Small", "75.61 ± 0.13"),
            Row("imagenet_polar_vit_small", "Polar-ViT, Small", "77.79 ± 0.10"),
        ),
        cost="about 8 GPU hours a seed at Tiny, 25 at Small, if decoding keeps up (ImageNet-1k must be at hand)",
        takes=TRAINING,
    ),
    Experiment(
        "fine-tuning",
        "fine-grained classification from the ImageNet weights, top-1 %, 3 seeds",
        "Table 3 (tab:hier-finetune)",
        HOME,
        rows=(
            Row("cub_vit_tiny", "CUB, Euclidean ViT, Tiny", "75.65 ± 1.01"),
            Row("cub_polar_vit_tiny", "CUB, Polar-ViT, Tiny", "79.53 ± 0.82"),
            Row("cub_deit_small", "CUB, Flat-ViT (DeiT-S), Small", "84.69 ± 0.31"),
            Row("cub_vit_small", "CUB, Euclidean ViT, Small", "79.77 ± 0.64"),
            Row("cub_polar_vit_small", "CUB, Polar-ViT, Small", "81.61 ± 0.22"),
            Row("aircraft_vit_tiny", "Aircraft, Euclidean ViT, Tiny", "65.17 ± 0.71"),
            Row("aircraft_polar_vit_tiny", "Aircraft, Polar-ViT, Tiny", "70.48 ± 0.50"),
            Row("aircraft_deit_small", "Aircraft, Flat-ViT (DeiT-S), Small", "80.58 ± 0.44"),
            Row("aircraft_vit_small", "Aircraft, Euclidean ViT, Small", "76.47 ± 0.73"),
            Row("aircraft_polar_vit_small", "Aircraft, Polar-ViT, Small", "80.03 ± 0.49"),
        ),
        cost="under 1 GPU hour a seed and row, after the ImageNet weights of Table 2",
        takes=TRAINING,
    ),
)
