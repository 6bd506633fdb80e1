"""CIFAR-100 at Tiny size: the headline, what makes it fair, and what the weights tell beyond the paper."""

from polarvit.experiments.registry import TRAINING, Experiment, Row

CIFAR100 = (
    Experiment(
        "cifar100",
        "Polar-ViT-Tiny, without horoshift, with the joint one, and its Euclidean twin, top-1 % at the last step",
        "Table 1 (tab:main), Tiny on CIFAR-100",
        "polarvit.experiments.cifar100.table",
        rows=(
            Row("polar_vit_tiny", "Polar-ViT", "80.15 ± 0.26"),
            Row("none", "Polar-ViT w/o horoshift", "78.04 ± 0.53"),
            Row("joint", "Polar-ViT, shift around one ideal point (ours)", ""),
            Row("vit_tiny", "Euclidean ViT", "74.64 ± 0.41"),
        ),
        cost="about 0.22 GPU hours a seed and row",
        result="cifar100/cifar100.json",
        takes=TRAINING,
    ),
    Experiment(
        "cifar100-sweep",
        "learning rates of both models at 11,710 steps, top-1 %",
        "our own: a twin at its best rate, before any claim",
        "polarvit.experiments.cifar100.sweep",
        rows=(
            *(
                Row(f"vit_tiny-lr-{rate}", f"Euclidean ViT, lr {rate}", "")
                for rate in ("5e-4", "1e-3", "2e-3", "4.15e-3")
            ),
            *(
                Row(
                    f"polar_vit_tiny-lr-{rate}",
                    f"Polar-ViT, lr {rate}, horoshift rates from 1, calibration by phi_0",
                    "",
                )
                for rate in ("1.5e-3", "3e-3")
            ),
        ),
        cost="about 1.5 GPU minutes a row",
        result="cifar100/cifar100-sweep.json",
        takes=TRAINING,
    ),
    Experiment(
        "cifar100-precision",
        "TF32 against strict float32 and bf16 products, Polar-ViT-Tiny at 11,710 steps, horoshift rates from 1, "
        "calibration by phi_0, top-1 %",
        "our own: the control of `cifar100`, whose products are TF32",
        "polarvit.experiments.cifar100.products",
        rows=(
            Row("tf32", "products in TF32", ""),
            Row("fp32", "products in strict float32", ""),
            Row("bf16", "products in bf16", ""),
        ),
        cost="about 1.5 GPU minutes a row",
        result="cifar100/cifar100-precision.json",
        takes=TRAINING,
    ),
    Experiment(
        "cifar100-choices",
        "choices the paper leaves open, at 11,710 or 29,275 steps, top-1 % on held-out training images",
        "our own: what to settle before long runs, without the test split",
        "polarvit.experiments.cifar100.choices",
        rows=(
            Row("rate-1", "horoshift rates start at 1", ""),
            Row("rate-4", "horoshift rates start at 4: as it is", ""),
            Row("spread", "horoshift rates of heads start between 1/2 and 8", ""),
            Row("joint", "joint horoshift, rates start at 4", ""),
            Row("table", "position table of standard deviation 1, calibration by phi_0", ""),
            Row("kept", "position table that does not decay", ""),
            Row("time-zero", "layers start without their time column", ""),
            Row("none", "without horoshift, calibration by phi_0", ""),
            Row("none-radius", "without horoshift, calibration by phi_0, one starting radius, 3.32, everywhere", ""),
            Row("none-weights", "without horoshift, calibration scales W: as it is", ""),
            Row("none-radius-weights", "without horoshift, one starting radius, 3.32, everywhere", ""),
            Row("none-mixed", "without horoshift, every batch mixed, not every second", ""),
            Row("none-ring", "without horoshift, mixing partners in a ring, not in pairs", ""),
        ),
        cost="about 1.5 GPU minutes a row of 11,710 steps, 4 of 29,275",
        result="cifar100/cifar100-choices.json",
        takes=TRAINING,
    ),
    Experiment(
        "cifar100-variants",
        "changes of the recipe at full length, and recipes of our own, top-1 % at the last step",
        "our own: where the distance to the paper may come from, and what helps",
        "polarvit.experiments.cifar100.variants",
        rows=(
            Row("offset", "calibration by phi_0, the former recipe", ""),
            Row("table", "position table of standard deviation 1, as in HexFormer, calibration by phi_0", ""),
            Row("none-table", "the same without horoshift", ""),
            Row("kept", "position table that does not decay", ""),
            Row("mixed", "every batch mixed, not every second", ""),
            Row("drop", "stochastic depth of 0.2", ""),
            Row("second", "ours: 117,100 steps more from the weights of seed 0, every batch mixed", ""),
            Row("long", "ours: 234,200 steps, every batch mixed", ""),
            Row("twin-released", "Euclidean ViT, all of HexFormer's released settings", ""),
            Row("twin-second", "Euclidean ViT, 117,100 steps more from its weights, every batch mixed", ""),
            Row("twin-long", "Euclidean ViT, 234,200 steps, every batch mixed", ""),
        ),
        cost="about 0.22 GPU hours a row, twice that for the long ones",
        result="cifar100/cifar100-variants.json",
        takes=TRAINING,
    ),
    Experiment(
        "cifar100-analysis",
        "what the trained weights tell beyond accuracy, Polar-ViT-Tiny beside its Euclidean twin, test images",
        "our own: radius, noise, superclasses and calibration",
        "polarvit.experiments.cifar100.analysis",
        rows=(
            Row("radius", "rank correlation of radius and confidence", ""),
            Row("noise", "top-1 under noise of standard deviation 0.1", ""),
            Row("superclasses", "siblings among the four nearest classes (by chance 4 %)", ""),
            Row("calibration", "expected calibration error, 15 bins", ""),
        ),
        cost="12 minutes on two CPU cores, less on a GPU",
        result="cifar100/analysis.json",
        takes=frozenset({"data", "device", "runs", "weights", "images"}),
    ),
)
