"""What the GPU kernels rely on: integer bounds, the order of operands, phases. None of it needs a GPU."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_reference import WEIGHT_KINDS, random_codes, random_weights

from bitrank.core.codes import weighted_hamming
from bitrank.gpu import plan
from bitrank.gpu.chunks import flags, words
from bitrank.gpu.quantise import Quantised, bit_positions, fragments, offsets, quantise
from bitrank.gpu.quantise import words as dp4a_words


def integer_sums(quantised, codes):
    """What the kernels sum: a set bit is 8."""
    bits = np.unpackbits(codes, axis=1).astype(np.int32)
    return 8 * (quantised.signed.astype(np.int32) @ bits.T)


@given(
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(1, 140), st.integers(1, 1024)),
    st.sampled_from(WEIGHT_KINDS),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_every_code_within_the_limit_is_a_hit(seed, n_bits, kind, per_query):
    rng = np.random.default_rng(seed)
    queries, codes = random_codes(rng, 3, n_bits, False), random_codes(rng, 200, n_bits, True)
    weights = random_weights(rng, (3 if per_query else 1, n_bits), kind)
    quantised = quantise(queries, weights, 10 ** int(rng.integers(2, 10)), int(rng.integers(1, 100)))
    assert np.abs(quantised.signed.astype(int)).max(initial=0) <= 127
    with np.errstate(over="ignore"):
        distances = weighted_hamming(queries, codes, np.broadcast_to(weights, (3, n_bits)))
    for limits in np.sort(distances, axis=1).T[[0, 1, 10, -1]]:
        sums = integer_sums(quantised, codes) + offsets(quantised, limits, queries.shape[1])[:, None]
        assert (sums[distances <= limits[:, None]] < 0).all()


def test_even_weights_have_an_exact_bound():
    rng = np.random.default_rng(0)
    for weight in (1, 0.75, 2.0**-140, 2.0**110):
        queries, codes = random_codes(rng, 4, 256, False), random_codes(rng, 500, 256, False)
        weights = np.full((1, 256), weight, np.float32)
        quantised = quantise(queries, weights, 500, 5)
        distances = weighted_hamming(queries, codes, weights[0])
        limits = np.sort(distances, axis=1)[:, 5]
        hits = integer_sums(quantised, codes) + offsets(quantised, limits, 32)[:, None] < 0
        np.testing.assert_array_equal(hits, distances <= limits[:, None])


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "decay"])
@pytest.mark.parametrize("n_bits", [64, 256])
def test_few_codes_beyond_the_limit_are_hits(kind, n_bits):
    rng = np.random.default_rng(0)
    queries, codes = random_codes(rng, 4, n_bits, False), random_codes(rng, 50_000, n_bits, False)
    weights = random_weights(rng, (4, n_bits), kind)
    quantised = quantise(queries, weights, 50_000, 10)
    distances = weighted_hamming(queries, codes, weights)
    limits = np.sort(distances, axis=1)[:, 9]
    hits = integer_sums(quantised, codes) + offsets(quantised, limits, n_bits // 8)[:, None] < 0
    assert hits.sum() < 10 * (distances <= limits[:, None]).sum()


def test_limits_that_every_code_or_none_is_within():
    quantised = Quantised(np.zeros((2, 8), np.int8), np.zeros(2, np.int32), np.ones(2))
    assert (offsets(quantised, np.float32([np.inf, -1]), 1) == [-(2**30), 2**30]).all()


def lane_parts(codes, width):
    """Registers of every lane as the kernel expands them, shape (n_steps, 2 registers, 32 lanes), of eight codes."""
    n_units = -(-width // 8)
    padded = np.zeros((8, 8 * n_units), np.uint8)
    padded[:, :width] = codes
    # Lane 4 g + t holds bytes 2 n_units t and on of code g.
    parts = padded.reshape(32, 2 * n_units)
    mask = np.uint32(0x08080808)
    if width % 8 == 0 and n_units % 2 == 0:
        loaded, n_registers = parts.view("<u4"), 8
    else:
        x = parts.view("<u2").astype(np.uint32)
        loaded, n_registers = x | x << np.uint32(12), 4
    registers = [
        (word << np.uint32(3 - j) if j < 3 else word >> np.uint32(j - 3)) & mask
        for word in loaded.T
        for j in range(n_registers)
    ]
    return np.array(registers).reshape(2 * n_units, 2, 32)


def multiplied(weights, registers):
    """`mma.m16n8k32` of one warp on its operands by lane, as the PTX manual lays them out: (16 queries, 8 codes)."""
    a, b = np.zeros((16, 32), np.int64), np.zeros((32, 8), np.int64)
    for lane in range(32):
        g, t = divmod(lane, 4)
        low = [np.uint32(register[lane]).reshape(1).view(np.int8) for register in registers]
        for i in range(4):
            a[g, 4 * t + i], a[g + 8, 4 * t + i] = weights[lane, 0, i], weights[lane, 1, i]
            a[g, 16 + 4 * t + i], a[g + 8, 16 + 4 * t + i] = weights[lane, 2, i], weights[lane, 3, i]
            b[4 * t + i, g], b[16 + 4 * t + i, g] = low[0][i], low[1][i]
    return a @ b


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 24, 31, 32, 40, 48, 64, 128])
def test_operands_of_the_matrix_operation_give_the_integer_sums(width):
    rng = np.random.default_rng(width)
    n_bits = 8 * width - int(rng.integers(0, 8))
    queries, codes = random_codes(rng, 19, n_bits, False), random_codes(rng, 8, n_bits, False)
    quantised = quantise(queries, rng.random((19, n_bits)).astype(np.float32), 1000, 10)
    operands, registers = fragments(quantised.signed, 2), lane_parts(codes, width)
    sums = np.zeros((2, 16, 8), np.int64)
    for group in range(2):
        for step, pair in enumerate(registers):
            sums[group] += multiplied(operands[group, step], pair)
    np.testing.assert_array_equal(sums.reshape(32, 8)[:19], integer_sums(quantised, codes))
    assert not sums.reshape(32, 8)[19:].any()
    taken = np.sort(bit_positions(width).ravel())
    np.testing.assert_array_equal(taken[: 8 * width], np.arange(8 * width))
    assert (taken[8 * width :] == 8 * width).all()


@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_operands_of_dp4a_give_the_integer_sums(width):
    rng = np.random.default_rng(width)
    query, codes = random_codes(rng, 1, 8 * width, False), random_codes(rng, 50, 8 * width, False)
    quantised = quantise(query, rng.random((1, 8 * width)).astype(np.float32), 1000, 10)
    weights = dp4a_words(quantised.signed)
    loaded = codes.view("<u4")
    sums = np.zeros(50, np.int64)
    for j in range(7, -1, -1):
        sums >>= 1
        for word in range(width // 4):
            masked = (loaded[:, word] & np.uint32(0x01010101 << j)).view(np.uint8).reshape(50, 4)
            sums += masked.astype(np.int64) @ weights[word, j].astype(np.int64)
    np.testing.assert_array_equal(8 * sums, integer_sums(quantised, codes)[0])


@given(st.one_of(st.integers(1, 200), st.integers(1, 10**6)), st.integers(1, 5000), st.sampled_from([64, 512]))
@settings(max_examples=100, deadline=None)
def test_phases_cover_every_tile_once(n_tiles, k, size):
    seen = np.zeros(n_tiles, int)
    for phase in plan.phases(n_tiles, k, size):
        i = np.arange(phase.n_tiles)
        seen[phase.stride * (i + i // (phase.ratio - 1) + 1 if phase.ratio else i)] += 1
    assert (seen == 1).all()


def test_a_phase_has_room_for_the_hits_of_the_next():
    for n_tiles in (100, 10_000, 2_000_000):
        for k in (1, 100, 2048):
            phases = plan.phases(n_tiles, k, plan.TILE)
            assert phases[0].scored
            assert phases[0].n_tiles * plan.TILE <= plan.capacity(k) * 2
            scanned = phases[0].n_tiles
            for phase in phases[1:]:
                assert k * phase.n_tiles / scanned < plan.capacity(k) / 2
                scanned += phase.n_tiles


def test_flags_and_words():
    live = np.random.default_rng(0).random(77) < 0.5
    np.testing.assert_array_equal(flags(words(live), 77), live)


def test_the_import_says_what_is_missing():
    code = "import sys; sys.modules['cupy'] = None; import bitrank.gpu; bitrank.gpu.GpuIndex"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "ModuleNotFoundError: this needs cupy: pip install 'bitrank[gpu]'" in done.stderr
