"""How many candidates does the second stage need? Recall against a second look at everything, and what it costs.

    python -m benchmarks.candidates [--data DIR] [--quick] [--json FILE]

Photographs of two sets and their mirror images make one gallery; every statement that is true of one of them is asked.
The ranking with C candidates is compared with that in which every picture is one.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import load_photos
from benchmarks.gallery import index_of, look
from benchmarks.geometry import questions_of
from benchmarks.record import DEFAULT_DATA, Metric, cluster_bootstrap, parser, write_result
from indexer.load import load_encoder
from parser import QueryParser
from service.rerank import CANDIDATES
from service.search import Searcher

SEED = 0
TOP = 10
COUNTS = (10, 30, 100, 300, 1000, 3000)
QUICK_PHOTOS = 100


def main() -> None:
    """Run the benchmark from the command line."""
    options = parser("Candidates of the second stage: recall and cost.")
    options.add_argument("--cache", type=Path, help="keep the image tower's output here for the next run")
    given = options.parse_args()
    root = given.data or DEFAULT_DATA / "coco"
    photos = [photo for part in ("dev", "train") for photo in load_photos(root / part)]
    if given.quick:
        photos = photos[:QUICK_PHOTOS]
    encoder = load_encoder("compact")
    seen = look(encoder, photos, cache=given.cache) + look(encoder, photos, mirrored=True, cache=given.cache)
    texts = sorted({question.text() for question in questions_of(photos)})
    with tempfile.TemporaryDirectory() as folder:
        index = index_of(seen, encoder, Path(folder) / "index")
        rows = measure(index, encoder, texts)
    chosen = min(rows, key=lambda row: abs(row["candidates"] - CANDIDATES))
    metrics = [
        Metric(
            "candidates_recall_at_10", chosen["recall"], "share", chosen["low"], chosen["high"], len(texts)
        ),
        Metric("candidates_pictures", len(index), "count"),
    ]
    path = write_result(
        "candidates", metrics, encoder=encoder.spec.name, seed=SEED, path=given.json, extra={"curve": rows}
    )
    plot(path)


def measure(index: Any, encoder: Any, texts: Sequence[str]) -> list[dict[str, float]]:
    """Recall of the first ten and milliseconds of the second stage, by how many candidates it looks at."""
    query_parser = QueryParser()
    whole = Searcher(index, encoder, query_parser, candidates=len(index))
    truth = [frozenset(hit.id for hit in result.hits) for result in whole.search_many(texts, k=TOP)]
    rows = []
    for count in (*(c for c in COUNTS if c < len(index)), len(index)):
        searcher = Searcher(index, encoder, query_parser, candidates=count)
        searcher.search_many(texts, k=TOP)  # references of all queries are remembered from here on
        took, shares = [], []
        for text, right in zip(texts, truth, strict=True):
            begin = time.perf_counter()
            result = searcher.search(text, k=TOP)
            took.append((time.perf_counter() - begin) * 1000)
            shares.append(len(right & {hit.id for hit in result.hits}) / len(right))
        low, high = cluster_bootstrap(shares, list(range(len(texts))))
        rows.append(
            {
                "candidates": count,
                "recall": float(np.mean(shares)),
                "low": low,
                "high": high,
                "p50_ms": float(np.median(took)),
            }
        )
        print({key: round(value, 4) for key, value in rows[-1].items()}, flush=True)
    return rows


def plot(result: Path) -> None:
    """Draw recall and cost over the candidates, beside the result file."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    document = json.loads(result.read_text(encoding="utf-8"))
    rows = document["curve"]
    counts = [row["candidates"] for row in rows]
    figure, left = plt.subplots(figsize=(6, 4))
    left.plot(counts, [row["recall"] for row in rows], "o-", label="recall of the first ten")
    left.fill_between(counts, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2)
    left.set(xscale="log", xlabel="candidates", ylabel="share of the first ten with everything a candidate")
    right = left.twinx()
    right.plot(counts, [row["p50_ms"] for row in rows], "s--", color="tab:red", label="whole query, p50")
    right.set(ylabel="ms", ylim=(0, None))
    left.axvline(CANDIDATES, color="grey", lw=0.8)
    left.grid(alpha=0.3)
    figure.legend(loc="lower center", ncol=2, fontsize=8)
    figure.suptitle(f"{document['encoder']}, {rows[-1]['candidates']} pictures")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(result.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
