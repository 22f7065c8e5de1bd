"""The numbers in the recipes: what each engine would compute from a body, computed here, is the weighted distance.

Qdrant's body is run by Qdrant itself, which exists as a library; of the others the documented arithmetic is redone.
"""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank.core.codes import pack, unpack, weighted_hamming
from bitrank.engines import quantize_weights

_FILE = importlib.util.spec_from_file_location("engine_bodies", Path(__file__).parents[2] / "examples/engine_bodies.py")
recipes = importlib.util.module_from_spec(_FILE)
_FILE.loader.exec_module(recipes)


@st.composite
def cases(draw, largest=255):
    """Codes, one query code, whole-numbered weights and their sum."""
    n_bits = draw(st.integers(1, 200))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = pack(rng.integers(0, 2, (8, n_bits)))
    weights = rng.integers(0, largest + 1, n_bits).astype(np.float32)
    return codes[1:], codes[0], weights


def expected(codes, query, weights):
    return weighted_hamming(query[None], codes, weights)[0]


def test_examples_of_the_file_run():
    command = [sys.executable, "-m", "doctest", "-v", _FILE.origin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 12


def as_json(body):
    """What arrives: numbers and text, nothing of NumPy."""
    return json.loads(json.dumps(body, allow_nan=False))


@given(cases())
def test_elasticsearch_scores(case):
    codes, query, weights = case
    body = as_json(recipes.elasticsearch_search(query, 3, weights))
    mapping = as_json(recipes.elasticsearch_mapping(len(weights)))["mappings"]["properties"]["code"]
    script = body["query"]["script_score"]["script"]
    assert script["source"] == "params.offset + dotProduct(params.query, 'code')"
    assert len(script["params"]["query"]) == mapping["dims"] == 8 * codes.shape[1]
    for number, code in enumerate(codes):
        document = as_json(recipes.elasticsearch_document(number, code))
        # As many values as the field has bits: they are summed where the stored bit is set, from the highest.
        stored = "".join(f"{byte:08b}" for byte in bytes.fromhex(document["code"]))
        product = sum(value for value, bit in zip(script["params"]["query"], stored, strict=True) if bit == "1")
        score = script["params"]["offset"] + product
        assert score >= 0  # a negative one is an error of Elasticsearch
        assert weights.sum() - score == expected(codes, query, weights)[number]


def test_elasticsearch_first_stage_and_ties():
    body = recipes.elasticsearch_search(
        np.uint8([255, 1]), 5, np.ones(16), method="rerank", candidates=100, field="it's"
    )
    near = {"field": "it's", "query_vector": "ff01", "k": 100, "num_candidates": 100}
    assert body["query"]["script_score"]["query"] == {"knn": near}
    assert body["query"]["script_score"]["script"]["source"].endswith(r"dotProduct(params.query, 'it\'s')")
    assert (body["size"], body["sort"]) == (5, [{"_score": "desc"}, {"id": "asc"}])


def signed(word):
    """64 bits as Java holds them in a long."""
    return (word + 2**63) % 2**64 - 2**63


@given(cases())
def test_opensearch_scores(case):
    codes, query, weights = case
    params = as_json(recipes.opensearch_search(query, 3, weights))["query"]["script_score"]["script"]["params"]
    properties = recipes.opensearch_mapping(len(weights))["mappings"]["properties"]
    assert all(-(2**63) <= word < 2**63 for row in [params["query"], *params["masks"]] for word in row)
    for number, code in enumerate(codes):
        document = as_json(recipes.opensearch_document(number, code))
        assert set(document) == set(properties)
        distance = 0
        for i, asked in enumerate(params["query"]):
            differ = document[params["field"] + str(i)] ^ asked
            for b, mask in enumerate(params["masks"]):
                distance += ((differ & mask[i]) % 2**64).bit_count() << b
        assert distance == expected(codes, query, weights)[number]
        assert params["total"] - distance >= 0
        assert bytes(byte % 256 for byte in document["code"]) == code.tobytes()


def test_opensearch_script_and_first_stage():
    body = recipes.opensearch_search(np.uint8([255, 1]), 5, np.ones(16), method="rerank", candidates=100)
    assert body["query"]["script_score"]["query"] == {"knn": {"code": {"vector": [-1, 1], "k": 100}}}
    assert set(re.findall(r"params\.(\w+)", recipes.OPENSEARCH_SCRIPT)) == {"query", "field", "masks", "total"}
    assert (
        signed(int.from_bytes(bytes([255, 1]) + bytes(6)))
        == recipes.opensearch_document(0, np.uint8([255, 1]))["code_0"]
    )
    with pytest.raises(ValueError, match="whole numbers"):
        recipes.opensearch_search(np.uint8([255]), 5, np.full(8, 0.5))


@given(cases())
def test_vespa_relevance(case):
    codes, query, weights = case
    body = as_json(recipes.vespa_search(query, 3, weights))
    schema = recipes.vespa_schema(len(weights))
    assert f"query(w) tensor<float>(x[{len(body['input.query(w)'])}])" in schema
    assert f"field code type tensor<int8>(x[{codes.shape[1]}])" in schema
    assert "query(offset) + sum(query(w) * unpack_bits(attribute(code)))" in schema
    for number, code in enumerate(codes):
        values = as_json(recipes.vespa_document(number, code))["fields"]["code"]["values"]
        # unpack_bits: from the highest bit of each int8.
        bits = np.array([byte >> (7 - at) & 1 for byte in values for at in range(8)])
        relevance = body["input.query(offset)"] + np.dot(body["input.query(w)"], bits)
        assert weights.sum() - relevance == expected(codes, query, weights)[number]
    assert bytes(byte % 256 for byte in body["input.query(q)"]) == query.tobytes()


@given(cases(largest=127))
def test_redis_distances(case):
    codes, query, weights = case
    search = recipes.redis_search(query, 3, weights)
    asked = np.frombuffer(search[search.index("q") + 1], np.int8).astype(int)
    create = recipes.redis_create(len(weights))
    assert create[create.index("DIM") + 1] == str(len(asked)) == str(len(weights))
    for number, code in enumerate(codes):
        stored = np.frombuffer(recipes.redis_document(number, code, len(weights))[-1], np.int8).astype(int)
        distance = 1 - asked @ stored  # Redis: IP
        assert (distance - 1 + weights.sum()) / 2 == expected(codes, query, weights)[number]


def test_redis_refuses_what_a_byte_cannot_hold():
    with pytest.raises(ValueError, match="up to 127, got 128"):
        recipes.redis_search(np.uint8([255]), 5, np.full(8, 128))
    with pytest.raises(ValueError, match="whole numbers"):
        recipes.redis_search(np.uint8([255]), 5, np.full(8, 0.5))


@pytest.fixture
def qdrant(tmp_path):
    """Searches that Qdrant runs, of the bodies for a collection and its points."""
    edge = pytest.importorskip("qdrant_edge")
    opened = []

    def start(collection, points):
        vectors, binary = collection["vectors"], collection["quantization_config"]["binary"]
        params = edge.EdgeVectorParams(
            size=vectors["size"],
            distance=getattr(edge.Distance, vectors["distance"]),
            datatype={"float16": edge.VectorStorageDatatype.Float16}[vectors["datatype"]],
            on_disk=vectors["on_disk"],
            quantization_config=edge.BinaryQuantizationConfig(**binary),
        )
        (tmp_path / "shard").mkdir()
        shard = edge.EdgeShard.create(str(tmp_path / "shard"), edge.EdgeConfig(vectors=params))
        shard.update(edge.UpdateOperation.upsert_points([edge.Point(**point) for point in points]))
        shard.optimize()
        opened.append(shard)

        def search(body):
            quantization = edge.QuantizationSearchParams(**body["params"]["quantization"])
            asked = edge.SearchParams(exact=body["params"].get("exact", False), quantization=quantization)
            return shard.search(
                edge.SearchRequest(query=edge.Query.Nearest(body["query"]), limit=body["limit"], params=asked)
            )

        return search

    yield start
    for shard in opened:
        shard.close()


@pytest.mark.parametrize("n_bits", [16, 98, 256])
def test_qdrant_itself_ranks_by_the_weighted_distance(qdrant, n_bits):
    rng = np.random.default_rng(0)
    codes, query = pack(rng.integers(0, 2, (2000, n_bits))), pack(rng.integers(0, 2, (1, n_bits)))[0]
    weights = quantize_weights(rng.lognormal(0, 1, n_bits))
    points = [as_json(recipes.qdrant_point(number, code, n_bits)) for number, code in enumerate(codes)]
    search = qdrant(as_json(recipes.qdrant_collection(n_bits)), points)
    distances = expected(codes, query, weights)
    for options in ({}, {"method": "rerank", "candidates": 2000}):
        found = search(as_json(recipes.qdrant_search(query, 20, weights, **options)))
        ids = np.array([point.id for point in found])
        scores = np.array([point.score for point in found])
        np.testing.assert_array_equal((weights.sum() - scores) / 2, distances[ids])
        # Which of equals it returns is Qdrant's choice.
        np.testing.assert_array_equal(distances[ids], np.sort(distances)[:20])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recipes.elasticsearch_search(np.uint8([1]), 0, np.ones(8)), "k must be"),
        (lambda: recipes.vespa_search(np.uint8([1]), 5, np.ones(8), method="rerank", candidates=4), "at least k"),
        (lambda: recipes.qdrant_search(np.uint8([[1]]), 5, np.ones(8)), "one row"),
        (lambda: recipes.qdrant_search(np.int64([1]), 5, np.ones(8)), "uint8"),
        (lambda: recipes.redis_search(np.uint8([1]), 5, np.ones(9)), "1 to 8 values"),
        (lambda: recipes.opensearch_search(np.uint8([1]), 5, -np.ones(8)), "not negative"),
        (lambda: recipes.opensearch_search(np.uint8([1]), 5, np.ones((1, 8))), "one vector"),
        (lambda: recipes.elasticsearch_search(np.uint8([1]), 5, np.ones(7)), "zero"),
        (lambda: recipes.elasticsearch_mapping(0), "n_bits must be"),
        (lambda: recipes.qdrant_point(1, np.uint8([1, 2]), 8), "1 bytes wide"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bits_are_those_of_unpack():
    code = pack([[1, 0, 0, 1, 1, 0, 0, 0, 1, 1]])[0]
    values = recipes.qdrant_point(0, code, 10)["vector"]
    assert [value > 0 for value in values] == unpack(code[None], 10)[0].astype(bool).tolist()
