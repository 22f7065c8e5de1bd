"""NFCorpus as an MTEB task: bitrank's codes and rankers beside MTEB's own CompressionWrapper and float embeddings.

`make bench-mteb` needs PyTorch and the file that docs/data.md describes, prints one line per ranking, and writes
benchmarks/results/mteb.json. Measures are MTEB's own, of the 325 test queries.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import CompressionWrapper, SearchEncoderWrapper
from mteb.similarity_functions import cos_sim, pairwise_cos_sim
from mteb.types import OutputDType

from bitrank import QueryVectorRanker, SignBits
from bitrank.integrations.mteb import BitrankSearchIndex
from bitrank.ranking import UniformRanker

sys.path.append(str(Path(__file__).parents[1]))
from nfcorpus import NFCorpus

RESULTS = Path(__file__).parents[1] / "results" / "mteb.json"
BITS = {1: 50, 2: 98, 4: 194}
MEASURES = ("ndcg_at_10", "map_at_100", "recall_at_100")


class Task(AbsTaskRetrieval):
    """The test queries of NFCorpus; texts are row numbers, which the model looks up."""

    metadata = TaskMetadata(
        type="Retrieval",
        name="NFCorpusRows",
        description="NFCorpus, embedded beforehand.",
        reference="https://www.cl.uni-heidelberg.de/statnlpgroup/nfcorpus/",
        dataset={"path": "NA", "revision": "NA"},
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2016-01-01", "2016-12-31"),
        domains=["Medical"],
        task_subtypes=[],
        license="not specified",
        annotations_creators="derived",
        modalities=["text"],
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
    )
    data: NFCorpus

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Make the task of the judgements."""
        rows = self.data.rows("test")
        relevant: dict[str, dict[str, int]] = {f"q{row}": {} for row in rows}
        for query, document, grade in self.data.judgements.tolist():
            if f"q{query}" in relevant:
                relevant[f"q{query}"][f"d{document}"] = grade
        documents = [{"id": f"d{row}", "title": "", "text": f"d{row}"} for row in range(len(self.data.documents))]
        self.dataset = {
            "default": {
                "test": {
                    "queries": Dataset.from_list([{"id": f"q{row}", "text": f"q{row}"} for row in rows]),
                    "corpus": Dataset.from_list(documents),
                    "relevant_docs": relevant,
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


class Lookup:
    """A model that knows the embedding of every row."""

    def __init__(self, data: NFCorpus) -> None:
        meta = mteb.get_model_meta("mteb/baseline-random-encoder")
        self.mteb_model_meta = meta.model_copy(update={"name": "bitrank/lookup"})
        self._vectors = {"d": data.documents, "q": data.query_vectors}

    def encode(self, inputs: Any, **kwargs: Any) -> np.ndarray:
        """Look up the embeddings of texts."""
        texts = [text.strip() for batch in inputs for text in batch["text"]]
        return np.stack([self._vectors[text[0]][int(text[1:])] for text in texts]).astype(np.float32)

    def similarity(self, a: Any, b: Any) -> Any:
        """Compute cosines."""
        return cos_sim(a, b)

    def similarity_pairwise(self, a: Any, b: Any) -> Any:
        """Compute the cosine of each pair."""
        return pairwise_cos_sim(a, b)


def models(data: NFCorpus) -> dict[str, Any]:
    hasher = SignBits().fit(data.documents)
    plain = _Unweighted().fit(data.codes)
    learned = QueryVectorRanker(random_state=0).fit_pairs(data.codes, data.pairs, queries=data.values)

    def bitrank(*parts: Any) -> Any:
        return SearchEncoderWrapper(Lookup(data), index_backend=BitrankSearchIndex(*parts))

    return {
        "float32, cosine (1536 bytes)": Lookup(data),
        "CompressionWrapper, binary (48 bytes)": CompressionWrapper(Lookup(data), OutputDType.BINARY),
        "bitrank, signs, float query (48 bytes)": bitrank(),
        "bitrank, centred, Hamming (48 bytes)": bitrank(plain, hasher),
        "bitrank, centred, float query (48 bytes)": bitrank(None, hasher),
        "bitrank, centred, QueryVectorRanker (48 bytes)": bitrank(learned, hasher),
        **{f"bitrank, bits={bits} ({n_bytes} bytes)": bitrank(None, None, bits) for bits, n_bytes in BITS.items()},
    }


class _Unweighted(UniformRanker):
    """Plain Hamming distance also for float queries, of which a ranker would keep the magnitudes."""

    def queries_for(self, queries: np.ndarray, **given: Any) -> Any:
        """Return codes with equal weights."""
        return super().queries_for(np.packbits(queries > 0, axis=1))


def main() -> None:
    warnings.filterwarnings("ignore")
    Task.data = NFCorpus()
    table = {}
    for name, model in models(Task.data).items():
        results = mteb.evaluate(model, Task(), cache=None, co2_tracker=False, show_progress_bar=False)
        scores = results.task_results[0].scores["test"][0]
        table[name] = {measure: round(float(scores[measure]), 4) for measure in MEASURES}
        print(f"{name:<50}" + "".join(f"{table[name][measure]:>10.4f}" for measure in MEASURES), flush=True)
    RESULTS.write_text(json.dumps({"mteb": mteb.__version__, "rankings": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
