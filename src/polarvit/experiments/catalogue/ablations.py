"""What each component contributes, on CIFAR-100 with the Tiny size."""

from polarvit.experiments.registry import TRAINING, Experiment, Row

ABLATIONS = (
    Experiment(
        "ablation",
        "one component after another, CIFAR-100 top-1 %, 10 seeds of 117,100 steps in the paper",
        "Table 5 (tab:ablation)",
        "polarvit.experiments.ablation",
        rows=(
            Row("lorentz_vit", "split-head Lorentz ViT, class-token readout", "73.99 ± 1.03"),
            Row("polar_ops", "+ polar change of current ops and gyro layer norm", "76.27 ± 0.81"),
            Row("boost_residual", "+ boost residual", "77.06 ± 0.43"),
            Row("polar_boost_residual", "+ polar boost residual", "77.20 ± 0.13"),
            Row("polar_fc", "+ polar fully connected layer", "78.04 ± 0.53"),
            Row("polar_vit", "+ horospherical positional encoding (Polar-ViT)", "80.15 ± 0.26"),
            Row("boost_encoding", "Polar-ViT with Lorentz boost encoding in place of horoshift", "79.82 ± 0.13"),
        ),
        cost="1 to 3 GPU minutes a row at 11,710 steps, 12 to 30 at 117,100, and compilation",
        takes=TRAINING,
        any_length=True,
    ),
    Experiment(
        "position",
        "the positional encoding, CIFAR-100 top-1 %, 10 seeds of 117,100 steps in the paper",
        "Table 5 (tab:ablation), last rows",
        "polarvit.experiments.position",
        rows=(
            Row("none", "no encoding", "78.04 ± 0.53"),
            Row("separate", "horospherical shift, one ideal point for each grid axis", "80.15 ± 0.26"),
            Row("boost", "Lorentz boost on the same axes", "79.82 ± 0.13"),
            Row("joint", "horospherical shift around one ideal point (ours)", ""),
            Row("separate-rate-1", "horospherical shift, rates start at 1 instead of 4", ""),
            Row("boost-rate-1", "Lorentz boost, rates start at 1 instead of 4", ""),
            Row("rotary", "rotation of space axes (after HELM)", ""),
        ),
        cost="1 to 3 GPU minutes a row at 11,710 steps, 12 to 30 at 117,100, and compilation",
        takes=TRAINING,
        any_length=True,
    ),
    Experiment(
        "radius-rule",
        "rules for the output radius of the polar layer, CIFAR-100 top-1 %, one seed",
        "Table 6 (tab:radial)",
        "polarvit.experiments.radius_rule",
        rows=(
            Row("anchored", "anchored gain", "78.45"),
            Row("anchored_0.1", "anchored gain, sigma = 0.1", "78.02"),
            Row("anchored_0.2", "anchored gain, sigma = 0.2", "77.36"),
            Row("free_power", "free power of the pre-activation norm", "75.22"),
            Row("affine_klein", "affine in the input radius, Klein input", "75.06"),
            Row("affine_direction", "affine in the input radius, unit-direction input", "74.42"),
            Row("sigmoid", "sigmoid-bounded radius", "74.04"),
            Row("hard_bound", "hard radius bound", "diverged"),
        ),
        cost="about 1.3 GPU minutes a row at 11,710 steps, 13 at 117,100, and compilation",
        takes=TRAINING,
        any_length=True,
    ),
)
