"""Medical segmentation with a U-Net: test Dice, mean of foreground and background."""

from polarvit.experiments.registry import Experiment, Row

SETS = {"isic2016": "ISIC 2016", "isic2018": "ISIC 2018", "kvasir": "Kvasir-SEG", "sanet": "SANET", "busi": "BUSI"}
PAPER = {
    "euclidean": ("Euclidean U-Net", ("0.92", "0.89", "0.86", "0.78", "0.82")),
    "poincare": ("Poincare U-Net", ("0.91", "0.87", "0.83", "0.76", "0.80")),
    "ambient": ("Lorentz U-Net, ambient", ("0.92", "0.81", "0.79", "0.73", "0.71")),
    "polar": ("Lorentz U-Net, polar", ("0.93", "0.89", "0.86", "0.81", "0.78")),
}

SEGMENTATION = (
    Experiment(
        "segmentation",
        "polar layers in a convolutional network, test Dice",
        "Table 9 (tab:unet)",
        rows=tuple(
            Row(f"{model}_{key}", f"{SETS[key]}, {label}", value)
            for model, (label, values) in PAPER.items()
            for key, value in zip(SETS, values, strict=True)
        ),
        cost="about 1 GPU hour a row and set (50 epochs of at most 2,335 images of 256 px)",
    ),
)
