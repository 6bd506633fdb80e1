"""What runs on a CPU in minutes: precision, weight decay, expressivity of a single layer, the corrections."""

from polarvit.experiments.registry import Experiment, Row

ARITHMETIC = (
    Experiment(
        "expressivity",
        "iterations until a single layer reaches a target at distance 1 to 18",
        "Figure 1 (fig:exp-test)",
        "polarvit.experiments.expressivity",
        rows=(
            Row("polar_unclipped", "Polar-FC, not clipped", "every target in both precisions, 70 to 650 iterations"),
            Row("polar_clipped", "Polar-FC, gradient clipped at 1", "every target in both, 1,100 to 6,000 iterations"),
            Row("chen", "Chen et al.", "limit of 10,000 reached at radius 6 in float64, 5 in float32"),
            Row("fgg_clipped", "FGG-LNN, clipped at 1", "every radius"),
            Row("fgg_unclipped", "FGG-LNN, not clipped", "fails from radius 15 in float64, 14 in float32"),
            Row("fewest", "fewest iterations, not clipped", "Polar-FC beyond radius 3"),
        ),
        cost="6 minutes of one CPU core",
    ),
    Experiment(
        "precision",
        "float32 error against radius: polar, ambient, geoopt, hypll",
        "Table 7 (tab:precision) and the numbers stated around it",
        "polarvit.experiments.precision",
        rows=tuple(
            Row(f"{operation}_{radius}", f"{label}, r = {radius}: ambient / polar", value)
            for operation, label, values in (
                ("squared_distance", "squared distance", ("3e-04 / 4e-07", "0.7 / 1e-05", "2e+03 / 7e-04")),
                ("centroid", "centroid", ("2e-04 / 9e-07", "9 / 5e-05", "9 / 3e-03")),
                ("gyro_centering", "gyro-norm centering", ("1.2e-04 / 5.6e-06", "0.7 / 4e-04", "NaN / 2e-02")),
            )
            for radius, value in zip((4, 8, 12), values, strict=True)
        ),
        cost="10 seconds on one CPU core",
    ),
    Experiment(
        "weight-decay",
        "Riemannian AdamW with a decay step in ambient and in polar arithmetic, float32",
        "the worked example of section 3, appendix A and appendix 'Numerical Precision'",
        "polarvit.experiments.weight_decay",
        rows=(
            Row("radius_8", "one step from r = 8, w = 1e-5", "true 7.985; ambient 8.14, or off by 0.1"),
            Row("radius_9", "one step from r = 9", "ambient: squares equal, NaN"),
            Row("radius_12", "one step from r = 12", "ambient: outward"),
        ),
        cost="seconds on a CPU",
    ),
    Experiment(
        "sites",
        "where ambient arithmetic still computes a centroid correctly",
        "Table 4 (tab:sites)",
        "polarvit.experiments.sites",
        rows=(
            Row("attention", "attention aggregation, a softmax row with leak delta", "delta theta^2 >~ 4 eps"),
            Row("decay", "manifold weight decay, centroid residual, weights (1 - w, w)", "w >~ eps e^a"),
            Row("pooling", "batch-norm mean, token pooling, uniform weights", "theta >~ 2 sqrt(eps) or r <= r_eps"),
            Row("centering", "gyro-norm centering", "r <= r_eps"),
        ),
        cost="seconds on a CPU",
    ),
    Experiment(
        "corrections",
        "eleven places where the paper's formulas are wrong or unsafe, and what is used instead",
        "formulas of sections 3 and 4 and appendices B to D",
        "polarvit.experiments.corrections",
        rows=(Row("holds", "places where the form used here is right and the paper's is not", ""),),
        cost="seconds on a CPU",
    ),
    Experiment(
        "trees",
        "a binary tree of 255 nodes in the hyperbolic plane: how far out each library keeps it, and trains it",
        "our own: what precision means for the oldest use of hyperbolic space",
        "polarvit.experiments.trees",
        rows=(
            Row("polar", "polarvit, float32", ""),
            Row("ambient", "ambient arithmetic, float32", ""),
            Row("geoopt_lorentz", "geoopt Lorentz, float32", ""),
            Row("geoopt_ball", "geoopt Poincaré ball, float32", ""),
            Row("hypll_ball", "hypll Poincaré ball, float32", ""),
            Row("polar_64", "polarvit, float64", ""),
            Row("geoopt_lorentz_64", "geoopt Lorentz, float64", ""),
        ),
        cost="a minute of one CPU core",
    ),
)
