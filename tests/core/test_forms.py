"""Codes as chemists, perceptual hashes and hashers give them."""

import gzip
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bitrank
from bitrank import ITQ, Collection, Index, from_embeddings
from bitrank.core.types import bits_of


class ImageHash:
    """What imagehash gives: a matrix of booleans, without rows of its own."""

    def __init__(self, matrix):
        self.hash = matrix

    def __len__(self):
        return self.hash.size

    def __str__(self):
        bits = "".join(map(str, self.hash.ravel().astype(int)))
        return f"{int(bits, 2):0{len(bits) // 4}x}"


def hashes(n, side=8):
    matrices = np.random.default_rng(0).random((n, side, side)) < 0.5
    return [ImageHash(matrix) for matrix in matrices], np.packbits(matrices.reshape(n, -1), axis=1)


@pytest.mark.parametrize(("n", "side"), [(1, 8), (8, 8), (16, 4), (5, 16)])
def test_image_hashes_are_codes(n, side):
    some, expected = hashes(n, side)
    assert Index(some).n_bits == side * side
    np.testing.assert_array_equal(Index(some).codes(range(n)), expected)
    np.testing.assert_array_equal(Collection.from_codes(some).codes(), expected)
    np.testing.assert_array_equal(from_embeddings(some), expected)
    np.testing.assert_array_equal(from_embeddings([str(each) for each in some], form="hex"), expected)


def test_the_matrix_of_one_hash_is_no_collection():
    matrix = hashes(1)[0][0].hash
    for make in (Index, Collection.from_codes):
        with pytest.raises(ValueError, match="which may be the hash of one picture: give a list of ImageHash"):
            make(matrix)
        assert len(make(matrix, n_bits=8)) == 8
        assert len(make([*matrix.tolist(), matrix[0].tolist()])) == 9
    with pytest.raises(ValueError, match="codes must be an array, got ImageHash"):
        Index(hashes(1)[0][0])


def test_the_real_imagehash():
    imagehash, image = pytest.importorskip("imagehash"), pytest.importorskip("PIL.Image")
    pictures = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 3), dtype=np.uint8)
    some = [imagehash.phash(image.fromarray(picture)) for picture in pictures]
    index = Index(some)
    apart = [[one - other for other in some] for one in some]
    np.testing.assert_array_equal(index.distances(some, [list(range(6))] * 6), apart)
    np.testing.assert_array_equal(from_embeddings(list(map(str, some)), form="hex"), index.codes(range(6)))


@pytest.mark.parametrize("n_bits", [12, 64, 2048, 4096])
def test_fingerprints_of_rdkit(n_bits, tmp_path):
    structs = pytest.importorskip("rdkit.DataStructs")
    bits = np.random.default_rng(n_bits).random((4, n_bits)) < 0.3
    some = [structs.CreateFromBitString("".join(map(str, row.astype(int)))) for row in bits]
    expected = np.packbits(bits, axis=1)
    index = Index(some)
    assert index.n_bits == n_bits
    np.testing.assert_array_equal(index.codes(range(4)), expected)
    np.testing.assert_array_equal(
        from_embeddings([structs.BitVectToFPSText(each) for each in some], form="fps"), expected
    )
    path = tmp_path / "some.fps"
    path.write_text(f"#FPS1\n#num_bits={n_bits}\n" + "".join(f"{structs.BitVectToFPSText(v)}\tm\n" for v in some))
    np.testing.assert_array_equal(bitrank.read_fps(path).codes, expected)
    best = index.search(some[:1], 4, similarity="tanimoto")
    similar = structs.BulkTanimotoSimilarity(some[0], some)
    np.testing.assert_allclose(np.sort(similar)[::-1], 1 - best.distances[0], atol=1e-6)


@given(st.integers(1, 70), st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
def test_files_of_fingerprints(n_bits, n, packed, seed):
    import tempfile
    from pathlib import Path

    bits = np.random.default_rng(seed).random((n, n_bits)) < 0.5
    rows = [np.packbits(row, bitorder="little").tobytes().hex() for row in bits]
    lines = [f"{row}\tid {at}\tmore\n" for at, row in enumerate(rows)]
    text = f"#FPS1\n#num_bits={n_bits}\n#type=x=y\n\n" + "".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.fps.gz" if packed else "some.fps")
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        codes, ids, width = bitrank.read_fps(path)
    assert (ids, width) == ([f"id {at}" for at in range(n)], n_bits)
    np.testing.assert_array_equal(codes, np.packbits(bits, axis=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#FPS1\n", "must hold lines of a fingerprint, a tab and a name, got none"),
        ("00ff\n", r"must hold lines of a fingerprint, a tab and a name, got \['00ff'\]"),
        ("00fg\tm\n", "must hold 0-9 and a-f only, got 'g'"),
        ("0 0f\tm\n", "must hold 0-9 and a-f only, got ' '"),
        ("00f\tm\n", "must have two digits per byte, got '00f'"),
        ("00\tm\n0000\tm\n", "must have one length, got 2 to 4 digits"),
        ("#num_bits=20\n0000\tm\n", "must hold fingerprints of the 20 bits it names, got 2 bytes"),
    ],
)
def test_damaged_files(tmp_path, text, message):
    path = tmp_path / "some.fps"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        bitrank.read_fps(path)


def test_hexadecimal_texts_must_say_so():
    with pytest.raises(ValueError, match='hexadecimal texts are form="hex"'):
        from_embeddings(["00ff"])
    pdq = "f8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22"
    assert from_embeddings([pdq], form="hex").tobytes().hex() == pdq


def test_descriptors_of_features():
    rng = np.random.default_rng(0)
    of_opencv, of_scikit_image = rng.integers(0, 256, (7, 32), dtype=np.uint8), rng.random((256, 256)) < 0.5
    assert Index(of_opencv).n_bits == Index(of_scikit_image).n_bits == 256
    assert from_embeddings(np.int8([[-3, 0, 5]]), form="float").tolist() == [[32]]


@pytest.mark.parametrize("n_bits", [3, 20, 24])
def test_codes_of_a_hasher_know_their_bits(n_bits, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 30))
    hasher = ITQ(n_bits, random_state=0).fit(X)
    codes = hasher.transform(X)
    assert Index(codes).n_bits == Index(codes[:5]).n_bits == Collection.from_codes(codes).n_bits == n_bits
    assert Index(codes).search(hasher.project(X[:1]), 1).ids.tolist() == [[0]]
    ranker = bitrank.AsymmetricRanker().fit(codes)
    assert ranker.n_bits_ == n_bits
    np.save(tmp_path / "codes.npy", codes)
    bare = np.load(tmp_path / "codes.npy")
    assert type(bare) is np.ndarray
    assert bits_of(bare) is None
    assert bits_of(codes[:, :0]) is bits_of(SimpleNamespace(n_bits=4)) is None
