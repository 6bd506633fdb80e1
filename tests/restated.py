"""The systems Polar-ViT is compared with, stated once more: NumPy, float64, one formula after the other, k = 1.

Nothing here is shared with the package: a state dict and images go in, logits come out. Points are rows, time first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf)


class State(dict[str, Array]):
    """The tensors below a prefix: `state / "blocks.0"`."""

    def __truediv__(self, prefix: str) -> State:
        return State({key[len(prefix) + 1 :]: x for key, x in self.items() if key.startswith(f"{prefix}.")})


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def up(space: Array) -> Array:
    """The point of the hyperboloid above space coordinates."""
    return np.concatenate([np.sqrt(1 + (space**2).sum(-1, keepdims=True)), space], -1)


def minkowski(x: Array, y: Array) -> Array:
    return (x[..., 1:] * y[..., 1:]).sum(-1) - x[..., 0] * y[..., 0]


def from_origin(v: Array) -> Array:
    """exp_o: v along its own direction by its own length."""
    r = np.linalg.norm(v, axis=-1, keepdims=True)
    return np.concatenate([np.cosh(r), np.where(r > 0, np.sinh(r) / np.where(r > 0, r, 1), 1) * v], -1)


def to_origin(x: Array) -> Array:
    space = x[..., 1:]
    s = np.linalg.norm(space, axis=-1, keepdims=True)
    return np.arcsinh(s) * space / s


def midpoint(points: Array, weights: Array) -> Array:
    """Lorentz centroid of points [M, n+1]."""
    mean = weights @ points
    return mean / math.sqrt(-minkowski(mean, mean))


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(centred.var(-1, keepdims=True) + eps) * weight + bias


def patches(image: Array, p: int) -> Array:
    """[C, H, W] -> [N, p p C], row by row, channels last."""
    _, h, w = image.shape
    cut = [
        image[:, i : i + p, j : j + p].transpose(1, 2, 0).reshape(-1) for i in range(0, h, p) for j in range(0, w, p)
    ]
    return np.stack(cut)


def mlr(x: Array, head: State) -> Array:
    """Lorentz MLR of one point, class by class."""
    logits = []
    for a, z in zip(head["offset"], head["normal"], strict=True):
        w = np.concatenate([[math.sinh(a) * np.linalg.norm(z)], math.cosh(a) * z])
        beta = math.sqrt(minkowski(w, w))
        logits.append(beta * math.asinh(minkowski(w, x) / beta))
    return np.array(logits)


def lorentz_vit(state: State, image: Array, c: Any) -> Array:
    """The ambient Lorentz ViT: general layers, geodesic scores, centroids, space norms and residuals."""

    def linear(x: Array, name: str, prefix: State) -> Array:
        return up(x @ prefix[f"{name}.weight"].T)

    x = linear(up(patches(image, c.patch_size)), "proj", state / "embed")
    x = up(x[:, 1:] + state["embed.table"])
    x = np.concatenate([from_origin(state["embed.token.vector"][None, 1:]), x])
    d = c.dim // c.heads
    for i in range(c.depth):
        b = state / f"blocks.{i}"
        y = up(layer_norm(x[:, 1:], b["norm1.weight"], b["norm1.bias"], c.norm_eps))
        q, k, v = (linear(y, name, b / "attention")[:, 1:] for name in ("query", "key", "value"))
        heads = []
        for h in range(c.heads):
            qh, kh, vh = (up(z[:, h * d : (h + 1) * d]) for z in (q, k, v))
            distance = np.arccosh(-minkowski(qh[:, None], kh[None]))
            p = softmax(-(distance**2) / math.sqrt(d) / math.exp(b["attention.log_temperature"][h]))
            heads.append(np.stack([midpoint(vh, row)[1:] for row in p]))
        x = up(x[:, 1:] + linear(up(np.concatenate(heads, -1)), "out", b / "attention")[:, 1:])
        y = up(layer_norm(x[:, 1:], b["norm2.weight"], b["norm2.bias"], c.norm_eps))
        hidden = up(gelu(y @ b["mlp.0.weight"].T))
        x = up(x[:, 1:] + hidden @ b["mlp.1.weight"].T)
    x = up(layer_norm(x[:, 1:], state["norm.weight"], state["norm.bias"], c.norm_eps))
    return mlr(x[0], state / "head")


def polar_vit(state: State, image: Array, c: Any) -> Array:
    """Polar-ViT and every row of the ablation before it, in ambient coordinates: motions of the space are matrices."""

    def linear(x: Array, name: str, prefix: State, phi: Any = lambda x: x) -> Array:
        own = prefix / name
        h = phi(x @ np.concatenate([own["time_weight"][:, None], own["weight"]], 1).T)
        size = np.linalg.norm(h, axis=-1, keepdims=True)
        return up(np.sinh(radius_of(x, size, own / "rule", c.rule)) * h / size)

    def norm(x: Array, prefix: State) -> Array:
        centred = x @ boost_to(midpoint(x, np.full(len(x), 1.0)), inverse=True).T
        variance = (np.arccosh(centred[:, 0]) ** 2).mean()
        scaled = math.exp(prefix["log_gain"]) / math.sqrt(variance + c.norm_eps) * to_origin(centred)
        return from_origin(scaled) @ boost_to(from_origin(prefix["bias"])).T

    x = up(linear(up(patches(image, c.patch_size)), "proj", state / "embed")[:, 1:] + state["embed.table"])
    d = c.dim // c.heads
    for i in range(c.depth):
        b = state / f"blocks.{i}"
        y = norm(x, b / "norm1")
        points = [linear(y, name, b / "attention")[:, 1:] for name in ("query", "key", "value")]
        heads = []
        for h in range(c.heads):
            cut = (up(z[:, h * d : (h + 1) * d]) for z in points)
            gains = np.exp(b["attention.log_gain"][:, h])
            q, k, v = (from_origin(gain * to_origin(z)) for gain, z in zip(gains, cut, strict=True))
            if c.position != "none":
                rates = b["attention.position.rate"][h]
                q, k = (np.stack([motion(c, rates, n) @ z for n, z in enumerate(moved)]) for moved in (q, k))
            distance = np.arccosh(np.maximum(-minkowski(q[:, None], k[None]), 1))
            p = softmax(-(distance**2) / math.sqrt(d) / math.exp(b["attention.log_temperature"][h]))
            heads.append(np.stack([midpoint(v, row)[1:] for row in p]))
        x = carried(x, linear(up(np.concatenate(heads, -1)), "out", b / "attention"), b / "residual1", c.residual)
        y = linear(norm(x, b / "norm2"), "fc1", b / "mlp", gelu)
        x = carried(x, linear(y, "fc2", b / "mlp"), b / "residual2", c.residual)
    return mlr(midpoint(x, np.full(len(x), 1.0)), state / "head")


def radius_of(x: Array, size: Array, rule: State, name: str) -> Array:
    """The output radius of a polar layer for points x, whose product has this size."""
    a, direction, klein = (
        np.arccosh(x[:, :1]),
        x[:, 1:] / np.linalg.norm(x[:, 1:], axis=-1)[:, None],
        x[:, 1:] / x[:, :1],
    )
    if name == "sigmoid":
        gate = 1 / (1 + np.exp(-(klein @ rule["weight"] + rule["bias"])))[:, None]
        return np.arccosh(1.1 + np.exp(rule["scale"]) * gate)
    if name == "lorentz":
        log_sinh = np.log(size) + rule["offset"]
    elif name == "free_power":
        log_sinh = rule["beta"] * np.log(size) + rule["phi0"]
    elif name.startswith("affine"):
        seen = klein if name == "affine_klein" else direction
        log_sinh = rule["slope"] * a + (seen @ rule["phi"])[:, None] + rule["phi0"]
    else:
        log_sinh = rule["beta"] * np.log(size) + rule["slope"] * a + (klein @ rule["phi"])[:, None] + rule["phi0"]
    radius = np.arcsinh(np.exp(log_sinh))
    return np.minimum(radius, 5) if name == "hard_bound" else radius


def motion(c: Any, rates: Array, n: int) -> Array:
    """The matrix that carries a query or key of patch n to its place on the grid."""
    columns = c.img_size // c.patch_size
    place, size = np.array(divmod(n, columns)), c.dim // c.heads + 1
    t = rates * place / columns
    matrix = np.eye(size)
    if c.position == "joint":
        return slide(size, 1, {2: t[0], 3: t[1]})
    for axis in (0, 1):
        if c.position == "separate":
            step = slide(size, 1 + 2 * axis, {2 + 2 * axis: t[axis]})
        elif c.position == "boost":
            step = boost_to(from_origin(t[axis] * np.eye(size - 1)[2 * axis]))
        else:
            step, pairs = np.eye(size), (size - 1) // 4
            for pair in range(pairs):
                angle, at = rates[axis] * place[axis] * 10_000 ** (-pair / pairs), 1 + 2 * (axis * pairs + pair)
                step[at : at + 2, at : at + 2] = [
                    [math.cos(angle), -math.sin(angle)],
                    [math.sin(angle), math.cos(angle)],
                ]
        matrix = step @ matrix
    return matrix


def slide(size: int, ideal: int, steps: dict[int, float]) -> Array:
    """exp of the generator that keeps x_0 - x_ideal and moves the other axes by it; its third power is zero."""
    generator = np.zeros((size, size))
    for axis, t in steps.items():
        generator[axis, 0], generator[axis, ideal] = t, -t
        generator[0, axis] = generator[ideal, axis] = t
    assert np.abs(generator @ generator @ generator).max() < 1e-12
    return np.eye(size) + generator + generator @ generator / 2


def carried(x: Array, step: Array, residual: State, name: str) -> Array:
    """A residual: space coordinates added, two boosts as matrices, or the paper's polar form of them."""
    if name == "space":
        return up(x[:, 1:] + step[:, 1:])
    a, b = np.arccosh(x[:, 0]), np.arccosh(step[:, 0])
    u, v = x[:, 1:] / np.sinh(a)[:, None], step[:, 1:] / np.sinh(b)[:, None]
    cosine, alpha = (u * v).sum(-1), residual["alpha"]
    across = v - cosine[:, None] * u
    sine = np.linalg.norm(across, axis=-1)
    sideways = across / sine[:, None]
    if name == "ambient_boost":
        radial, turning = alpha * b * cosine, alpha * b * sine
        return np.stack(
            [
                boost_to(from_origin(turning[n] * sideways[n])) @ boost_to(from_origin(radial[n] * u[n])) @ x[n]
                for n in range(len(x))
            ]
        )
    away = a + alpha * (b * cosine - (b * cosine).mean())
    turned = np.tanh(a)[:, None] * u + np.sinh(alpha * b * sine)[:, None] * sideways
    return from_origin(away[:, None] * turned / np.linalg.norm(turned, axis=-1, keepdims=True))


def hex_norm(x: Array, gain: float, bias: Array, eps: float) -> Array:
    """Centre, divide by the mean distance, carry to the bias: boosts as matrices instead of transports."""
    mean = midpoint(x, np.full(len(x), 1 / len(x)))
    centred = x @ boost_to(mean, inverse=True).T
    v = to_origin(centred)
    spread = np.linalg.norm(v, axis=-1).mean()
    return from_origin(v * gain / (spread + eps)) @ boost_to(from_origin(bias)).T


def boost_to(point: Array, inverse: bool = False) -> Array:
    """The matrix of the pure boost that carries the origin to `point`."""
    t, s = point[0], point[1:] * (-1 if inverse else 1)
    matrix = np.eye(len(point))
    matrix[0, 0], matrix[0, 1:], matrix[1:, 0] = t, s, s
    matrix[1:, 1:] += np.outer(s, s) / (1 + t)
    return matrix


def hexformer(state: State, image: Array, c: Any) -> Array:
    """HexFormer: sigmoid-timed layers with shared times of heads, tangent aggregation, norms over tokens."""

    def raw(x: Array, name: str, prefix: State) -> tuple[Array, Array]:
        h = x @ prefix[f"{name}.weight"].T
        return 1 / (1 + np.exp(-h[:, :1])) * math.exp(prefix[f"{name}.scale"]) + 1.5, h[:, 1:]

    def stretched(t: Array, s: Array) -> Array:
        return np.concatenate([t, s * np.sqrt(t**2 - 1) / np.linalg.norm(s, axis=-1, keepdims=True)], -1)

    x = stretched(*raw(up(patches(image, c.patch_size)), "proj", state / "embed"))
    x = np.concatenate([from_origin(state["embed.token.vector"][None, 1:]), x])
    x = up(x[:, 1:] + state["embed.table"])
    d = c.dim // c.heads
    for i in range(c.depth):
        b = state / f"blocks.{i}"
        y = hex_norm(x, b["norm1.gain"][0], b["norm1.bias.vector"][1:], c.norm_eps)
        (tq, q), (tk, k), (tv, v) = (raw(y, name, b / "attention") for name in ("query", "key", "value"))
        heads = []
        for h in range(c.heads):
            cut = slice(h * d, (h + 1) * d)
            qh, kh, vh = stretched(tq, q[:, cut]), stretched(tk, k[:, cut]), stretched(tv, v[:, cut])
            squared = -2 - 2 * minkowski(qh[:, None], kh[None])
            p = softmax(-squared / math.sqrt(d) / b["attention.temperature"][0])
            heads.append(from_origin(p @ to_origin(vh))[:, 1:])
        x = up(x[:, 1:] + stretched(*raw(up(np.concatenate(heads, -1)), "out", b / "attention"))[:, 1:])
        y = hex_norm(x, b["norm2.gain"][0], b["norm2.bias.vector"][1:], c.norm_eps)
        t, s = raw(y, "0", b / "mlp")
        x = up(x[:, 1:] + stretched(*raw(stretched(t, gelu(s)), "1", b / "mlp"))[:, 1:])
    x = hex_norm(x, state["norm.gain"][0], state["norm.bias.vector"][1:], c.norm_eps)
    if c.head == "mlr":
        return mlr(x[0], state / "head")
    return to_origin(x[0]) @ state["head.weight"].T + state["head.bias"]


def lvit(state: State, image: Array, c: Any) -> Array:
    """LViT: biased general layers, inner-product scores, centroids, sums brought back and scaled by 27.5."""

    def linear(x: Array, name: str, prefix: State) -> Array:
        return x @ prefix[f"{name}.weight"].T + prefix[f"{name}.bias"]

    def summed(x: Array, y: Array, w: float, scale: float) -> Array:
        z = x + w * y
        return up(scale * z[:, 1:] / np.sqrt(np.abs(minkowski(z, z)))[:, None])

    x = up(linear(up(patches(image, c.patch_size)), "proj", state / "embed"))
    x = summed(x, from_origin(state["embed.table.vector"][:, 1:]), float(state["embed.add.weight"]), 1.0)
    d = c.dim // c.heads
    for i in range(c.depth):
        b = state / f"blocks.{i}"
        x = up(layer_norm(x[:, 1:], b["norm1.weight"], b["norm1.bias"], c.norm_eps))
        q, k, v = (linear(x, name, b / "attention") for name in ("query", "key", "value"))
        heads = []
        for h in range(c.heads):
            qh, kh, vh = (up(z[:, h * d : (h + 1) * d]) for z in (q, k, v))
            scores = (2 + 2 * minkowski(qh[:, None], kh[None])) / b["attention.scale"][0] + b["attention.bias"]
            heads.append(np.stack([midpoint(vh, row) for row in softmax(scores)]))
        step = up(linear(np.concatenate(heads, -1), "out", b / "attention"))
        x = summed(x, step, float(b["residual1.weight"]), c.residual_scale)
        y = up(layer_norm(x[:, 1:], b["norm2.weight"], b["norm2.bias"], c.norm_eps))
        step = up(linear(up(gelu(linear(y, "0", b / "mlp"))), "1", b / "mlp"))
        x = summed(x, step, float(b["residual2.weight"]), c.residual_scale)
    return mlr(midpoint(x, np.full(len(x), 1 / len(x))), state / "head")


def hvt(state: State, image: Array, c: Any) -> Array:
    """HVT in the ball of radius 1, with points kept within 0.996 of the centre."""

    def inside(x: Array) -> Array:
        size = np.linalg.norm(x, axis=-1, keepdims=True)
        return np.where(size > 0.996, 0.996 * x / size, x)

    def exp(v: Array) -> Array:
        size = np.linalg.norm(v, axis=-1, keepdims=True)
        return inside(np.tanh(size) * v / np.where(size > 0, size, 1))

    def log(x: Array) -> Array:
        size = np.linalg.norm(x, axis=-1, keepdims=True)
        return np.arctanh(size) * x / np.where(size > 0, size, 1)

    def add(x: Array, y: Array) -> Array:
        xy, xx, yy = ((a * b).sum(-1, keepdims=True) for a, b in ((x, y), (x, x), (y, y)))
        return inside(((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy))

    def linear(v: Array, name: str, prefix: State) -> Array:
        """From a tangent vector at the centre to a point."""
        return add(exp(v @ prefix[f"{name}.weight"].T), exp(prefix[f"{name}.bias.vector"] / 2))

    def norm(x: Array, name: str, prefix: State) -> Array:
        return exp(layer_norm(log(x), prefix[f"{name}.weight"], prefix[f"{name}.bias"], c.norm_eps))

    x = linear(patches(image, c.patch_size), "proj", state / "embed")
    x = add(x, exp(state["embed.scale"] * log(exp(state["embed.table.vector"] / 2))))
    d = c.dim // c.heads
    for i in range(c.depth):
        b = state / f"blocks.{i}"
        q, k, v = (linear(log(x), name, b / "attention") for name in ("query", "key", "value"))
        heads = []
        for h in range(c.heads):
            qh, kh, vh = (log(z[:, h * d : (h + 1) * d]) for z in (q, k, v))
            heads.append(softmax(qh @ kh.T / math.sqrt(d) / b["attention.temperature"][h, 0, 0]) @ vh)
        step = linear(log(exp(np.concatenate(heads, -1))), "out", b / "attention")
        x = norm(add(x, exp(b["residual1.scale"] * log(step))), "norm1", b)
        hidden = log(linear(log(x), "0", b / "mlp"))
        slope = b["mlp.1.slope"][0]
        step = linear(log(exp(np.where(hidden > 0, hidden, slope * hidden))), "2", b / "mlp")
        x = norm(add(x, exp(b["residual2.scale"] * log(step))), "norm2", b)
    pooled = log(norm(x, "norm", state)).mean(0)
    return pooled @ state["head.weight"].T + state["head.bias"]


def deit(state: State, image: Array, heads: int, patch: int) -> Array:
    """DeiT by timm's names: a convolution over patches, token and positions, pre-norm blocks, the token's logits."""
    kernel = state["patch_embed.proj.weight"]
    rows, columns = image.shape[1] // patch, image.shape[2] // patch
    x = np.array(
        [
            [
                (kernel[d] * image[:, patch * i : patch * (i + 1), patch * j : patch * (j + 1)]).sum()
                for d in range(len(kernel))
            ]
            for i in range(rows)
            for j in range(columns)
        ]
    )
    x = np.concatenate([state["cls_token"][0], x + state["patch_embed.proj.bias"]]) + state["pos_embed"][0]

    def norm(part: State, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * part["weight"] + part["bias"]

    def linear(part: State, x: Array) -> Array:
        return x @ part["weight"].T + part["bias"]

    for i in range(sum(key.endswith("norm1.bias") for key in state)):
        block = state / f"blocks.{i}"
        q, k, v = np.split(linear(block / "attn.qkv", norm(block / "norm1", x)), 3, -1)
        width = q.shape[-1] // heads
        each = [slice(width * h, width * (h + 1)) for h in range(heads)]
        seen = [softmax(q[:, h] @ k[:, h].T / math.sqrt(width)) @ v[:, h] for h in each]
        x = x + linear(block / "attn.proj", np.concatenate(seen, -1))
        x = x + linear(block / "mlp.fc2", gelu(linear(block / "mlp.fc1", norm(block / "norm2", x))))
    return linear(state / "head", norm(state / "norm", x)[0])
