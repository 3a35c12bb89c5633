"""What the parser reads, misses and wrongly reads, and what it costs.

``python -m benchmarks.parser [--data DIR] [--quick] [--json FILE] [--list]``

* ``gold_exact``: rows of ``cases/queries.jsonl`` (beside the data folder) with exactly the relations they name.
* ``own_exact``: the same for this project's table, by kind of sentence.
* ``vsr_exact``: statements of Visual Spatial Reasoning whose phrase is one of ours, triple for triple;
  ``vsr_false_fires``: scored relations read from the others.
* ``caption_fires``: captions of the training photographs from which something scored is read.
* ``caption_precision``: facts read from those captions that a reader found right. ``judged.json`` keeps the verdicts
  under a hash of caption and fact, never the words; ``--list`` prints the facts with their keys and verdicts.
* ``ms_*``: one query at a time on one thread, spaCy loaded; batched is the time a query in one call for all.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.record import DEFAULT_DATA, ROOT, Metric, wilson, write_result
from benchmarks.record import parser as options
from parser import ParsedQuery, QueryParser, Relation, SpatialRelation

SENTENCES = ROOT / "tests" / "parser" / "sentences.jsonl"
JUDGED = Path(__file__).with_name("judged.json")
PLAIN = (
    "a dog",
    "red car",
    "sunset",
    "two people eating pizza",
    "a man riding a bicycle in the rain",
    "a black and white portrait of an old woman with glasses",
)
SEED = 0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    args_parser = options(__doc__.splitlines()[0] if __doc__ else "")
    args_parser.add_argument("--list", action="store_true", help="print every scored fact of the captions")
    args = args_parser.parse_args(argv)
    data: Path = args.data or DEFAULT_DATA
    reader = QueryParser()
    reader.warm()
    metrics: list[Metric] = []
    extra: dict[str, Any] = {"spacy": find_spec("spacy") is not None}

    gold = _rows(data.parent / "cases" / "queries.jsonl")
    metrics.append(_share("gold_exact", [_exact(reader, row) for row in gold]))
    own = _rows(SENTENCES)
    metrics.append(_share("own_exact", [_exact(reader, row) for row in own]))
    extra["by_kind"] = _by_kind(reader, own)

    metrics += _vsr(reader, _rows(data / "phrases" / "vsr.jsonl"), extra)
    photos = _rows(data / "coco" / "train" / "photos.jsonl")
    captions = [caption for photo in photos for caption in photo["captions"]]
    metrics += _captions(reader, captions, extra, show=args.list)
    metrics += _costs(
        reader, [row["query"] for row in own if row["relations"]], repeats=3 if args.quick else 20
    )

    _print_kinds(extra)
    write_result("parser", metrics, encoder=None, seed=SEED, path=args.json, extra=extra)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SystemExit(
            f"no {path}: --data names a folder that holds phrases/ and coco/train/ and stands beside cases/"
        ) from None
    return [json.loads(line) for line in lines]


def _share(name: str, right: Sequence[bool]) -> Metric:
    low, high = wilson(sum(right), len(right))
    return Metric(name, sum(right) / max(len(right), 1), "share", low, high, len(right))


def _exact(reader: QueryParser, row: dict[str, Any]) -> bool:
    return bool(reader.parse(row["query"]).to_dict()["relations"] == row["relations"])


def _by_kind(reader: QueryParser, rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """For each kind of sentence: rows, facts named, facts read, facts named but not read, facts read but not named."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        named = {tuple(fact.values()) for fact in row["relations"]}
        read = {tuple(fact.values()) for fact in reader.parse(row["query"]).to_dict()["relations"]}
        kinds[row["kind"]].update(
            rows=1, named=len(named), read=len(read), missed=len(named - read), false=len(read - named)
        )
    return {kind: dict(counts) for kind, counts in kinds.items()}


def _vsr(reader: QueryParser, rows: list[dict[str, Any]], extra: dict[str, Any]) -> list[Metric]:
    parsed = reader.parse_many(row["text"] for row in rows)
    right: list[bool] = []
    wrong: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for row, one in zip(rows, parsed, strict=True):
        if row["relation"]:
            exact = one.relations == (
                SpatialRelation(row["subject"], Relation(row["relation"]), row["object"]),
            )
            right.append(exact)
            wrong[row["phrase"]] += not exact
        else:
            false[row["phrase"]] += bool(one.relations)
    extra["vsr_wrong_by_phrase"] = dict(+wrong)
    extra["vsr_false_by_phrase"] = dict(+false)
    return [
        _share("vsr_exact", right),
        Metric("vsr_false_fires", float(sum(false.values())), "count", n=len(rows) - len(right)),
    ]


def _scored(parsed: ParsedQuery) -> list[SpatialRelation]:
    return [
        fact
        for fact in parsed.relations
        if not (isinstance(fact.relation, Relation) and fact.relation.is_depth)
    ]


def _key(caption: str, fact: SpatialRelation) -> str:
    words = "\n".join((caption, fact.subject, fact.relation, fact.object or ""))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _captions(reader: QueryParser, captions: list[str], extra: dict[str, Any], *, show: bool) -> list[Metric]:
    verdicts: dict[str, bool] = json.loads(JUDGED.read_text(encoding="utf-8"))["right"]
    fires: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    judged: list[bool] = []
    unjudged = fired = 0
    for caption, parsed in zip(captions, reader.parse_many(captions), strict=True):
        fires.update(str(fact.relation) for fact in parsed.relations)
        reasons.update(note.reason for note in parsed.unscored)
        facts = _scored(parsed)
        fired += bool(facts)
        for fact in facts:
            key = _key(caption, fact)
            if key in verdicts:
                judged.append(verdicts[key])
            else:
                unjudged += 1
            if show:
                verdict = {True: "right", False: "WRONG", None: "-"}[verdicts.get(key)]
                print(
                    f"{key} {verdict:<6}{fact.subject} | {fact.relation} | {fact.object or ''}\n    {caption.strip()}"
                )
    extra["caption_fires_by_relation"] = dict(fires.most_common())
    extra["caption_unscored_by_reason"] = dict(reasons.most_common())
    extra["caption_facts_not_judged"] = unjudged
    return [
        Metric("caption_fires", float(fired), "count", n=len(captions)),
        _share("caption_precision", judged),
    ]


def _costs(reader: QueryParser, queries: list[str], *, repeats: int) -> list[Metric]:
    metrics = []
    for name, texts in (("trigger", queries), ("plain", list(PLAIN) * 10)):
        took = []
        for _ in range(repeats):
            for text in texts:
                start = time.perf_counter()
                reader.parse(text)
                took.append(1e3 * (time.perf_counter() - start))
        cuts = statistics.quantiles(took, n=100)
        metrics += [
            Metric(f"ms_{name}_p50", cuts[49], "ms", n=len(took)),
            Metric(f"ms_{name}_p95", cuts[94], "ms", n=len(took)),
        ]
    start = time.perf_counter()
    for _ in range(repeats):
        reader.parse_many(queries)
    each = 1e3 * (time.perf_counter() - start) / (repeats * len(queries))
    worst = max(
        _once(reader, text) for text in ("left of " * 1_250, "a cat left of a dog and " * 416, "x" * 10_000)
    )
    return [
        *metrics,
        Metric("ms_batched", each, "ms", n=len(queries)),
        Metric("ms_10000_characters", worst, "ms"),
    ]


def _once(reader: QueryParser, text: str) -> float:
    start = time.perf_counter()
    reader.parse(text)
    return 1e3 * (time.perf_counter() - start)


def _print_kinds(extra: dict[str, Any]) -> None:
    print(
        f"{'kind of sentence':<16}{'rows':>6}{'named':>7}{'read':>6}{'missed':>8}{'false':>7}",
        file=sys.stderr,
    )
    for kind, c in extra["by_kind"].items():
        print(
            f"{kind:<16}{c['rows']:>6}{c['named']:>7}{c['read']:>6}{c['missed']:>8}{c['false']:>7}",
            file=sys.stderr,
        )
    print("caption facts:", extra["caption_fires_by_relation"], file=sys.stderr)
    print("not judged:", extra["caption_facts_not_judged"], file=sys.stderr)


if __name__ == "__main__":
    main()
