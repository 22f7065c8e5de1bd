"""An engine that is a file: what was added is there after it was closed."""

import numpy as np

import bitrank
from bitrank.core.codes import pack


def add_20_and_remove_one(url):
    """Add 20 codes, open the file again, find each of them, and remove one."""
    codes = pack(np.eye(20))
    with bitrank.connect(url) as engine:
        engine.create(20)
        engine.add(codes, np.arange(20) + 100)
    with bitrank.connect(url) as engine:
        engine.create(20)
        assert (engine.count(), engine.n_bits) == (20, 20)
        assert engine.search(codes, 1, method="rerank").ids[:, 0].tolist() == list(range(100, 120))
        engine.remove([100])
