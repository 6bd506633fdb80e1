"""Hyperbolic geometry in polar coordinates: pure functions of tensors, as accurate as points are stored.

Every function takes `k` (a float or a learnable 0-dim tensor; curvature is -1/k), broadcasts over batches and works
in float64, float32 and, computing in float32, bfloat16. `ambient` holds the same names in ambient arithmetic.
"""

from polarvit.geometry import ambient
from polarvit.geometry.centroid import centroid
from polarvit.geometry.convert import (
    from_ambient,
    from_ball,
    from_klein,
    from_space,
    from_tangent0,
    to_ambient,
    to_ball,
    to_klein,
    to_space,
    to_tangent0,
)
from polarvit.geometry.distance import distance, pairwise_distance, squared_distance
from polarvit.geometry.gyro import exp_map, gyroadd, gyroneg, gyroscale, log_map
from polarvit.geometry.join import concat, split, split_heads
from polarvit.geometry.points import PolarPoint, PolarTangent
from polarvit.geometry.shifts import boost, busemann, horoshift, rotate
from polarvit.geometry.tangent import riemannian_gradient, tangent_inner, transport
from polarvit.geometry.validate import validate

__all__ = [
    "PolarPoint",
    "PolarTangent",
    "ambient",
    "boost",
    "busemann",
    "centroid",
    "concat",
    "distance",
    "exp_map",
    "from_ambient",
    "from_ball",
    "from_klein",
    "from_space",
    "from_tangent0",
    "gyroadd",
    "gyroneg",
    "gyroscale",
    "horoshift",
    "log_map",
    "pairwise_distance",
    "riemannian_gradient",
    "rotate",
    "split",
    "split_heads",
    "squared_distance",
    "tangent_inner",
    "to_ambient",
    "to_ball",
    "to_klein",
    "to_space",
    "to_tangent0",
    "transport",
    "validate",
]
