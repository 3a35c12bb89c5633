"""Ask queries that name no relation, and hold the answers to the native ranking, bit for bit.

    python -m benchmarks.native_promise [--data DIR] [--index INDEX] [--quick] [--json FILE]

Captions that parse to nothing are asked three ways, alone, in batches and over HTTP from another process, each in mode
``auto`` and in mode ``native``. Ids, order and the bits of the scores of the first fifty answers are compared.
"""

from __future__ import annotations

import http.client
import json
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.data import load_photos
from benchmarks.http import served
from benchmarks.record import DEFAULT_DATA, Metric, parser, write_result
from indexer.build import build_index
from indexer.load import load_encoder
from parser import QueryParser
from service.query import Mode
from service.results import SearchResult
from service.search import Searcher

CAPTIONS = 1000
QUICK_CAPTIONS = 100
K = 50
_BATCH = 64
Answer = list[tuple[str, bytes]]
"""Ids and the bits of the scores, best first."""


def main() -> None:
    """Run the benchmark from the command line."""
    options = parser("The native promise, bit for bit.")
    options.add_argument("--index", type=Path, help="ask this index instead of one of the data's photographs")
    arguments = options.parse_args()
    data = arguments.data or DEFAULT_DATA / "coco" / "dev"
    captions = plain_captions(data, QUICK_CAPTIONS if arguments.quick else CAPTIONS)
    with tempfile.TemporaryDirectory() as scratch:
        index = arguments.index or Path(scratch) / "index"
        if arguments.index is None:
            build_index(data / "images", index, load_encoder(device="cpu"))
        metrics = compare(index, captions)
    write_result("native_promise", metrics, encoder="compact", seed=0, path=arguments.json)


def plain_captions(data: Path, count: int) -> list[str]:
    """The first captions that name no relation."""
    every = dict.fromkeys(caption for photo in load_photos(data) for caption in photo.captions)
    parsed = QueryParser().parse_many(list(every))
    return [one.query for one in parsed if not one.relations and one.query.strip()][:count]


def compare(index: Path, captions: Sequence[str]) -> list[Metric]:
    """How many captions are answered in another way than natively."""
    searcher = Searcher.open(index, device="cpu")
    native = [_answer(searcher.search(caption, k=K, mode=Mode.NATIVE)) for caption in captions]
    alone = [_answer(searcher.search(caption, k=K)) for caption in captions]
    batched = [
        _answer(result)
        for start in range(0, len(captions), _BATCH)
        for result in searcher.search_many(captions[start : start + _BATCH], k=K)
    ]
    with served(index) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=60)
        over_http = {mode: [_ask(connection, c, mode) for c in captions] for mode in (Mode.AUTO, Mode.NATIVE)}
    found = {
        "alone": alone,
        "batched": batched,
        "http": over_http[Mode.AUTO],
        "http_native": over_http[Mode.NATIVE],
    }
    return [
        Metric(
            f"differences_{name}",
            sum(one != other for one, other in zip(answers, native, strict=True)),
            "count",
            n=len(captions),
        )
        for name, answers in found.items()
    ]


def _answer(result: SearchResult) -> Answer:
    return [(hit.id, struct.pack("<f", hit.score)) for hit in result.hits]


def _ask(connection: http.client.HTTPConnection, caption: str, mode: Mode) -> Answer:
    connection.request("GET", f"/v1/search?{urlencode({'q': caption, 'k': K, 'mode': mode.value})}")
    response = connection.getresponse()
    body = json.loads(response.read())
    if response.status != 200:
        raise SystemExit(f"{response.status} for {caption!r}: {body}")
    return [(hit["id"], struct.pack("<f", hit["score"])) for hit in body["hits"]]


if __name__ == "__main__":
    main()
