"""The listwise loss in plain loops, numerical gradients, and classes that two bits tell apart."""

import numpy as np

from bitrank.core.codes import pack


def toy(n=200, n_bits=16, seed=0):
    """Four classes told by the first two bits, with errors; the others are noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    bits = rng.integers(2, size=(n, n_bits))
    bits[:, 0], bits[:, 1] = y // 2, y % 2
    bits[:, :2] ^= rng.random((n, 2)) < 0.05
    return pack(bits), y


def direct_loss(scores, similar):
    """The listwise loss as it is described, in plain loops."""
    losses = []
    for row, same in zip(scores, similar, strict=True):
        if not same.any():
            continue
        e = np.exp(row)
        dissimilar = e[~same].sum()
        every = np.mean([np.log(1 + dissimilar / e[i]) for i in np.flatnonzero(same)])
        some = -np.log(e[same].sum() / e.sum())
        losses.append(0.4 * every + 0.6 * some)
    return np.mean(losses) if losses else 0.0


def differences(function, at, step=1e-5):
    out = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        out[place] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return out
