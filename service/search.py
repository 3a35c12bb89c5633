"""The searcher: parse, encode, score, explain. No HTTP in it.

What this module holds to:

- a query that names no relation takes the very path of ``mode=native``: same vectors, same scan, same scores;
- the same query alone, in a batch or in pages gives the same hits in the same order, to the last bit;
- nothing is dropped in silence: what did not rank is a warning.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from indexer.encoder import Encoder, EncoderMismatch, phrase_text
from indexer.errors import UnreadableImage
from indexer.images import open_image
from indexer.load import load_encoder_for
from indexer.store import Index, open_index
from parser.relation import ParsedQuery, SpatialRelation
from service.engine import Engine, Scores, Top, canonical_scores
from service.errors import BadCursor, ImageGone, SearchError
from service.pictures import Pictures
from service.query import Mode, SearchRequest, clean_query
from service.readout import displacement_direction, phrases, select
from service.reference import Reference
from service.results import Hit, Ranking, SearchResult
from service.scan import JointQuery
from service.texts import TextVectors

SAME_SPACE = 0.999
"""Cosine between a stored vector and the same picture embedded again, below which the spaces differ."""


class Parser(Protocol):
    """What reads relations out of a text."""

    def parse_many(self, texts: Iterable[str]) -> list[ParsedQuery]:
        """Read queries."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A request on its way: checked, parsed, turned into vectors."""

    request: SearchRequest
    offset: int
    parsed: ParsedQuery
    ranked: tuple[SpatialRelation, ...]
    warnings: tuple[str, ...]
    vectors: JointQuery | None = None
    parts: tuple[JointQuery, ...] = ()


class Searcher:
    """Answers queries over one opened index. Thread-safe; owns the engine, the text cache and the encoder.

    Parameters
    ----------
    index : Index
    encoder : Encoder
        The one that made it.
    parser : Parser
    device : str
        Where the scan runs.
    images : Path, optional
        Where the pictures are now, if not where they were indexed.
    """

    def __init__(
        self,
        index: Index,
        encoder: Encoder,
        parser: Parser,
        *,
        device: str = "cpu",
        images: Path | None = None,
    ) -> None:
        self.index = index
        self.encoder = encoder
        self.pictures = Pictures(index, images or Path(index.manifest.image_root))
        self.engine = Engine(index, device)
        self.texts = TextVectors(encoder)
        self.reference = Reference(index)
        self._parser = parser
        self._parsing = Lock()

    @classmethod
    def open(
        cls, folder: Path, *, device: str = "auto", pretrained: str | None = None, images: Path | None = None
    ) -> Searcher:
        """Open an index with the encoder that made it.

        Raises
        ------
        IndexMissing, IndexDamaged, EncoderUnavailable, EncoderMismatch
            Nothing is half open then.
        """
        from parser import QueryParser  # noqa: PLC0415  (may load a language model)

        index = open_index(folder)
        encoder = load_encoder_for(index.manifest.encoder, pretrained=pretrained, device=device)
        parser = QueryParser()
        searcher = cls(index, encoder, parser, device=device, images=images)
        searcher.check_space()
        parser.warm()
        searcher.search("a picture", k=1)  # the first query of a process pays for the libraries' start
        return searcher

    def search(self, query: str, **options: Any) -> SearchResult:
        """Answer one query.

        Parameters
        ----------
        query : str
        **options
            Fields of :class:`SearchRequest`.

        Raises
        ------
        SearchError
        """
        return self.search_many([query], **options)[0]

    def search_many(self, queries: Sequence[str], **options: Any) -> list[SearchResult]:
        """Answer queries together; each gets what it would get alone.

        Raises
        ------
        SearchError
            The first query that cannot be answered.
        """
        answers = self.answer([SearchRequest(query, **options) for query in queries])
        results = []
        for answer in answers:
            if isinstance(answer, SearchError):
                raise answer
            results.append(answer)
        return results

    def answer(self, requests: Sequence[SearchRequest]) -> list[SearchResult | SearchError]:
        """Answer requests together, each with its result or its own error."""
        clock = _Clock()
        with clock("parse"):
            jobs = self._begin(requests)
        with clock("encode"):
            encoded = iter(self._encode([job for job in jobs if isinstance(job, _Job)]))
            jobs = [job if isinstance(job, SearchError) else next(encoded) for job in jobs]
        valid = [job for job in jobs if isinstance(job, _Job)]
        queries = [job.vectors for job in valid if job.vectors is not None]
        with clock("scan"):
            tops = self.engine.top(queries, [job.offset + job.request.k for job in valid])
            pages = [self._page(job, top) for job, top in zip(valid, tops, strict=True)]
        with clock("native_rank"):
            spatial = [i for i, job in enumerate(valid) if job.ranked]
            ranks = self.engine.native_ranks([queries[i] for i in spatial], [pages[i].rows for i in spatial])
            native_ranks = dict(zip(spatial, ranks, strict=True))
        took: dict[str, float] = {}
        made = [
            self._result(job, page, native_ranks.get(i), took)
            for i, (job, page) in enumerate(zip(valid, pages, strict=True))
        ]
        took.update(clock.stop())
        results = iter(made)
        return [job if isinstance(job, SearchError) else next(results) for job in jobs]

    def parse(self, query: str) -> ParsedQuery:
        """Read a query as a search would.

        Raises
        ------
        SearchError
            It is empty or too long.
        """
        return self._parse([clean_query(query)])[0]

    def check_space(self) -> None:
        """Embed stored pictures again and compare.

        Raises
        ------
        EncoderMismatch
            None of up to three pictures lands where it was: same weights, other arithmetic.
        """
        cosines = []
        for row in np.unique(np.linspace(0, len(self.index) - 1, 3).astype(int)) if len(self.index) else ():
            try:
                image = open_image(self.pictures.file(self.pictures.at(row))).image
            except (UnreadableImage, ImageGone):
                continue
            again = self.encoder.encode_images([self.encoder.prepare(image)]).pooled[0]
            cosines.append(float(again.astype(np.float64) @ self.index.native()[row].astype(np.float64)))
        if cosines and max(cosines) < SAME_SPACE:
            raise EncoderMismatch(
                "the encoder puts stored pictures elsewhere than the index has them",
                expected=f"cosine of at least {SAME_SPACE}",
                came=f"{max(cosines):.4f}",
                fix="Build a new index.",
            )

    def _parse(self, texts: Sequence[str]) -> list[ParsedQuery]:
        with self._parsing:
            return self._parser.parse_many(texts)

    def _begin(self, requests: Sequence[SearchRequest]) -> list[_Job | SearchError]:
        checked = [self._check(request) for request in requests]
        texts = [one[0].query for one in checked if not isinstance(one, SearchError)]
        parsed = iter(self._parse(texts))
        return [one if isinstance(one, SearchError) else _job(*one, next(parsed)) for one in checked]

    def _check(self, request: SearchRequest) -> tuple[SearchRequest, int] | SearchError:
        try:
            request = replace(request, query=clean_query(request.query))
            request.check()
            return request, request.offset if request.cursor is None else self._resume(request)
        except SearchError as error:
            return error

    def _encode(self, jobs: Sequence[_Job]) -> list[_Job]:
        template = self.encoder.spec.template
        wanted = [
            [job.request.query, *(phrase_text(template, phrase) for phrase in phrases(job.ranked))]
            for job in jobs
        ]
        encoded = dict(zip(texts := [t for ts in wanted for t in ts], self.texts(texts), strict=True))
        return [self._vectors(job, [encoded[t] for t in ts]) for job, ts in zip(jobs, wanted, strict=True)]

    def _vectors(self, job: _Job, encoded: Sequence[tuple[Any, bool]]) -> _Job:
        (native, truncated), *sides = encoded
        warnings = job.warnings
        if truncated:
            limit = self.encoder.spec.context_length
            warnings = (
                *warnings,
                f"The query is longer than the encoder reads ({limit} tokens): the rest was left out.",
            )
        if not job.ranked:
            return replace(job, vectors=JointQuery(native), warnings=warnings)
        vectors = {p: v for p, (v, _) in zip(phrases(job.ranked), sides, strict=True)}
        directions = [displacement_direction([r], vectors, self.index.sketcher) for r in job.ranked]
        scaled = [d * (job.request.weight * self.reference.displacement_unit(d)) for d in directions]
        parts = [JointQuery(native, d.astype(np.float32)) for d in scaled] if job.request.explain else ()
        joint = JointQuery(native, np.sum(scaled, axis=0).astype(np.float32))
        return replace(job, vectors=joint, parts=tuple(parts), warnings=warnings)

    def _page(self, job: _Job, top: Top) -> Top:
        page = slice(job.offset, job.offset + job.request.k)
        return Top(top.rows[page], top.scores[page])

    def _result(
        self,
        job: _Job,
        page: Top,
        native_ranks: np.ndarray[Any, np.dtype[np.int64]] | None,
        took: dict[str, float],
    ) -> SearchResult:
        request, scores = job.request, page.scores
        shown = slice(None)
        if request.min_score is not None:
            shown = slice(int((scores.total >= request.min_score).sum()))
        end = job.offset + len(page.rows)
        more = end < len(self.index) and len(page.rows[shown]) == len(page.rows)
        return SearchResult(
            query=request.query,
            mode=Ranking.SPATIAL if job.ranked else Ranking.NATIVE,
            parsed=job.parsed,
            ranked_relations=job.ranked,
            hits=tuple(self._hits(job, page, native_ranks))[shown],
            warnings=job.warnings,
            total=len(self.index),
            next_cursor=f"{end:x}.{self._fingerprint(request)}" if more and len(page.rows) else None,
            took_ms=took,
        )

    def _hits(
        self, job: _Job, page: Top, native_ranks: np.ndarray[Any, np.dtype[np.int64]] | None
    ) -> Iterator[Hit]:
        scores: Scores = page.scores
        ids = self.index.images["id"].take(page.rows).to_pylist()
        paths = self.index.images["path"].take(page.rows).to_pylist()
        parts = [canonical_scores(self.index, part, page.rows).spatial for part in job.parts]
        for i, (image_id, path) in enumerate(zip(ids, paths, strict=True)):
            rank = job.offset + i + 1
            yield Hit(
                id=image_id,
                path=path,
                rank=rank,
                score=float(scores.total[i]),
                native_score=float(scores.native[i]),
                spatial_score=float(scores.spatial[i]),
                native_rank=rank if native_ranks is None else int(native_ranks[i]),
                contributions=tuple(float(part[i]) for part in parts),
            )

    def _resume(self, request: SearchRequest) -> int:
        if request.offset:
            raise BadCursor("and an offset exclude each other")
        match = re.fullmatch(r"([0-9a-f]{1,8})\.([0-9a-f]{16})", request.cursor or "")
        if match is None:
            raise BadCursor("is none of ours")
        if match[2] != self._fingerprint(request):
            raise BadCursor("belongs to another query or an older index")
        return int(match[1], 16)

    def _fingerprint(self, request: SearchRequest) -> str:
        """Digest what a cursor must have in common with the query it continues."""
        files = self.index.manifest.files
        parts = (
            request.query,
            request.mode.value,
            request.depth,
            float(request.weight),
            files["native"].sha256,
        )
        return hashlib.sha256(repr((*parts, files["sketch"].sha256)).encode()).hexdigest()[:16]


def _job(request: SearchRequest, offset: int, parsed: ParsedQuery) -> _Job:
    if request.mode is Mode.NATIVE:
        return _Job(request, offset, parsed, (), ())
    chosen = select(parsed.relations, depth=request.depth)
    return _Job(request, offset, parsed, chosen.ranked, (*parsed.warnings, *chosen.warnings))


class _Clock:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._took: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._took[stage] = (time.perf_counter() - begin) * 1000

    def stop(self) -> dict[str, float]:
        return self._took | {"total": (time.perf_counter() - self._begin) * 1000}
