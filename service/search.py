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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexer.encoder import Encoder, EncoderMismatch, phrase_text, require_same_encoder
from indexer.errors import UnreadableImage
from indexer.images import open_image
from indexer.load import load_encoder_for
from indexer.manifest import read_manifest
from indexer.store import Index, open_index
from parser.relation import ParsedQuery, SpatialRelation
from service.canonical import Floats, JointQuery, Rows, Scores, canonical_scores
from service.emphasis import emphasis
from service.engine import Engine, Top
from service.errors import BadCursor, ImageGone, SearchError
from service.filters import rows_where
from service.pictures import Pictures
from service.query import Mode, Readout, SearchRequest, clean_query
from service.readout import UNIT, displacement_direction, phrases, select
from service.recent import Recent
from service.reference import Reference
from service.rerank import CANDIDATES, Joined, Reading, Reranker
from service.results import Hit, Ranking, SearchResult
from service.texts import TextVectors

SAME_SPACE = 0.999
"""Cosine between a stored vector and the same picture embedded again, below which the spaces differ."""
REMEMBERED = 512
"""Queries that are not read again when they are asked again, a few KiB each."""
_NO_PARTS = np.zeros((0, 0))


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
    readout: Readout
    vectors: JointQuery | None = None
    parts: tuple[JointQuery, ...] = ()
    reading: Reading | None = None
    allowed: Rows | None = None
    """Rows that meet the request's conditions; None where it has none."""

    @property
    def weight(self) -> float:
        """Of the spatial score, in this sentence."""
        return self.request.weight * emphasis(self.request.query, self.ranked)

    @property
    def joint(self) -> JointQuery:
        """Its vectors, once it is encoded."""
        assert self.vectors is not None
        return self.vectors

    @property
    def end(self) -> int:
        """Hits up to the end of the page."""
        return self.offset + self.request.k

    @property
    def scored(self) -> int:
        """Rows of the first stage that are needed."""
        return self.end if self.reading is None else max(self.end, self.reading.candidates)


@dataclass(frozen=True, slots=True, eq=False)
class _Page:
    """The hits of a page as rows.

    Attributes
    ----------
    top : Top
    parts : (R, relations) float64
        Of the spatial scores, where asked for.
    candidates : int
        How many of the rows the second stage scored.
    """

    top: Top
    parts: NDArray[np.float64]
    candidates: int


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
    candidates : int
        How many pictures of the first stage the second scores again.
    """

    def __init__(
        self,
        index: Index,
        encoder: Encoder,
        parser: Parser,
        *,
        device: str = "cpu",
        images: Path | None = None,
        candidates: int = CANDIDATES,
    ) -> None:
        self.index = index
        self.encoder = encoder
        self._images, self._candidates = images, candidates
        self.pictures = Pictures(index, images or Path(index.manifest.image_root))
        self.engine = Engine(index, device)
        self.texts = TextVectors(encoder)
        self.reference = Reference(index)
        self.reranker = Reranker(index, candidates=candidates) if index.grid_sketcher is not None else None
        self._parser = parser
        self._parsing = Lock()
        self._asked: Recent[tuple[Any, ...], _Job] = Recent()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        pretrained: str | None = None,
        images: Path | None = None,
        onnx_texts: bool = False,
        warm: bool = True,
    ) -> Searcher:
        """Open an index with the encoder that made it.

        Parameters
        ----------
        folder : Path
        device : str
            ``auto``, ``cpu`` or ``cuda``.
        pretrained, images : optional
            Where the weights and the pictures are now, if not where they were.
        onnx_texts : bool
            Embed texts by :class:`indexer.onnx_texts.OnnxTexts`.
        warm : bool
            Whether to pay now for what the first queries of a process would wait for: right for a server, waste for a
            process that asks once.

        Raises
        ------
        IndexMissing, IndexDamaged, EncoderUnavailable, EncoderMismatch
            Nothing is half open then.
        """
        from parser import QueryParser  # noqa: PLC0415  (may load a language model)

        index = open_index(folder)
        own = load_encoder_for(index.manifest.encoder, pretrained=pretrained, device=device)
        encoder: Encoder = own
        if onnx_texts:
            from indexer.onnx_texts import OnnxTexts  # noqa: PLC0415  (an extra)

            encoder = OnnxTexts(own)
        parser = QueryParser()
        searcher = cls(index, encoder, parser, device=device, images=images)
        searcher.check_space()
        if warm:
            parser.warm()
            # The first queries of a process pay for the libraries' start and for loops that are not compiled yet.
            for count in (1, 2):
                searcher.search_many(["a picture", "a cup to the left of a laptop"] * count, k=1)
        return searcher

    def reopened(self) -> Searcher | None:
        """The index as its folder holds it now, with the same encoder and what is remembered of texts.

        Returns
        -------
        newer : Searcher or None
            None while nothing has changed.

        Raises
        ------
        IndexMissing, IndexDamaged, EncoderMismatch
            This searcher goes on as before.
        """
        if read_manifest(self.index.folder) == self.index.manifest:
            return None
        index = open_index(self.index.folder)
        require_same_encoder(index.manifest.encoder, self.encoder.spec)
        newer = Searcher(
            index,
            self.encoder,
            self._parser,
            device=self.engine.device,
            images=self._images,
            candidates=self._candidates,
        )
        newer.texts = self.texts
        newer.search("a picture", k=1)
        return newer

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
        with clock("scan"):
            tops = self._tops(valid)
        with clock("rerank"):
            pages = [self._page(job, top) for job, top in zip(valid, tops, strict=True)]
        with clock("native_rank"):
            native_ranks = self._native_ranks(valid, tops, pages)
        took: dict[str, float] = {}
        made = [
            self._result(job, page, native_ranks.get(i), took)
            for i, (job, page) in enumerate(zip(valid, pages, strict=True))
        ]
        took.update(clock.stop())
        results = iter(made)
        return [job if isinstance(job, SearchError) else next(results) for job in jobs]

    def _tops(self, jobs: Sequence[_Job]) -> list[Top]:
        """The first stage: one scan for all that ask the whole index."""
        free = [job for job in jobs if job.allowed is None]
        ranks_follow = any(job.ranked for job in free)
        found = iter(
            self.engine.top(
                [job.joint for job in free], [job.scored for job in free], ranks_follow=ranks_follow
            )
        )
        return [
            next(found) if job.allowed is None else self.engine.top_among(job.joint, job.allowed, job.scored)
            for job in jobs
        ]

    def _native_ranks(
        self, jobs: Sequence[_Job], tops: Sequence[Top], pages: Sequence[_Page]
    ) -> dict[int, NDArray[np.int64]]:
        """Where the hits of spatial queries stand in the native ranking, by number of the job."""
        spatial = [i for i, job in enumerate(jobs) if job.ranked]
        free = [i for i in spatial if jobs[i].allowed is None]
        ranks = self.engine.native_ranks(
            [jobs[i].joint for i in free], [pages[i].top.rows for i in free], [tops[i].coarse for i in free]
        )
        found = dict(zip(free, ranks, strict=True))
        for i in spatial:
            allowed = jobs[i].allowed
            if allowed is not None:
                found[i] = self.engine.native_ranks_among(jobs[i].joint, pages[i].top.rows, allowed)
        return found

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
                reduce_to = self.index.manifest.jpeg_reduce_to
                image = open_image(self.pictures.read(self.pictures.at(row)), reduce_to=reduce_to).image
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
        known = [None if isinstance(one, SearchError) else self._remembered(*one) for one in checked]
        new = [
            one
            for one, job in zip(checked, known, strict=True)
            if job is None and not isinstance(one, SearchError)
        ]
        parsed = self._parse([request.query for request, *_ in new]) if new else []
        begun = (self._job(*one, read) for one, read in zip(new, parsed, strict=True))
        return [
            one if isinstance(one, SearchError) else job or next(begun)
            for one, job in zip(checked, known, strict=True)
        ]

    def _remembered(self, request: SearchRequest, offset: int, allowed: Rows | None) -> _Job | None:
        """The same query, asked before: read and encoded already."""
        job = self._asked.get(_key(request))
        return job and replace(job, request=request, offset=offset, allowed=allowed)

    def _remember(self, job: _Job) -> _Job:
        self._asked.put(_key(job.request), replace(job, allowed=None), most=REMEMBERED)
        return job

    def _job(self, request: SearchRequest, offset: int, allowed: Rows | None, parsed: ParsedQuery) -> _Job:
        wanted = request.readout or Readout.CENTROID
        readout = wanted if self.reranker is not None else Readout.MOMENT
        if request.mode is Mode.NATIVE:
            return _Job(request, offset, parsed, (), (), readout, allowed=allowed)
        chosen = select(parsed.relations, depth=request.depth, centre=readout is not Readout.MOMENT)
        warnings = (*parsed.warnings, *chosen.warnings)
        if chosen.ranked and request.readout not in (None, readout):
            warnings = (*warnings, f"The index has no patch grids: {readout} was used, not {wanted}.")
        if readout is Readout.ADR and len(phrases(chosen.ranked)) == 1:
            # The coupling with a single word is even: what is left of it is rounding.
            readout = Readout.ADR_DENSE
            warnings = (
                *warnings,
                f"{wanted} weighs words against each other, and one was read: {readout} was used.",
            )
        return _Job(request, offset, parsed, chosen.ranked, warnings, readout, allowed=allowed)

    def _check(self, request: SearchRequest) -> tuple[SearchRequest, int, Rows | None] | SearchError:
        try:
            request = replace(request, query=clean_query(request.query))
            request.check()
            allowed = rows_where(self.index.images, request.where) if request.where else None
            return request, request.offset if request.cursor is None else self._resume(request), allowed
        except SearchError as error:
            return error

    def _encode(self, jobs: Sequence[_Job]) -> list[_Job]:
        template = self.encoder.spec.template
        wanted = [
            [job.request.query, *(phrase_text(template, phrase) for phrase in phrases(job.ranked))]
            for job in jobs
        ]
        encoded = dict(zip(texts := [t for ts in wanted for t in ts], self.texts(texts), strict=True))
        return [
            job if job.vectors is not None else self._remember(self._vectors(job, [encoded[t] for t in ts]))
            for job, ts in zip(jobs, wanted, strict=True)
        ]

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
        weight = job.weight
        parts = [self._moment_part(native, one, vectors, weight) for one in job.ranked]
        spatial = [part.spatial for part in parts if part.spatial is not None]
        joint = JointQuery(native, np.sum(spatial, axis=0, dtype=np.float32) if spatial else None)
        reading = None
        if self.reranker is not None and job.readout is not Readout.MOMENT:
            reading = self.reranker.read(job.ranked, vectors, job.readout)
        return replace(job, vectors=joint, parts=tuple(parts), reading=reading, warnings=warnings)

    def _moment_part(
        self, native: Floats, relation: SpatialRelation, vectors: Mapping[str, Floats], weight: float
    ) -> JointQuery:
        """One relation as the first stage sees it; the centre has no moment."""
        if relation.relation not in UNIT:
            return JointQuery(native)
        direction = displacement_direction([relation], vectors, self.index.sketcher)
        unit = self.reference.displacement_unit(direction)
        return JointQuery(native, (direction * (weight * unit)).astype(np.float32))

    def _page(self, job: _Job, first: Top) -> _Page:
        page = slice(job.offset, job.end)
        if job.reading is None or self.reranker is None:
            rows = first.rows[page]
            return _Page(Top(rows, first.scores[page]), self._parts(job, rows), 0)
        joined = self.reranker.join(job.reading, first, weight=job.weight)
        rows = joined.top.rows[page]
        parts = self._joined_parts(job, joined, rows) if job.request.explain else _NO_PARTS
        candidates = max(0, min(len(rows), joined.candidates - job.offset))
        return _Page(Top(rows, joined.top.scores[page]), parts, candidates)

    def _joined_parts(self, job: _Job, joined: Joined, rows: Rows) -> NDArray[np.float64]:
        near = joined.parts[job.offset : job.end]
        # What lowers the others belongs to no relation: each bears the same.
        far = self._parts(job, rows[len(near) :]) - joined.lowered / len(job.parts)
        return np.concatenate([near, far])

    def _parts(self, job: _Job, rows: Rows) -> NDArray[np.float64]:
        """Spatial score of the first stage by relation (R, relations)."""
        if not job.request.explain or not job.parts:
            return _NO_PARTS
        return np.stack(
            [canonical_scores(self.index, part, rows).spatial for part in job.parts], axis=1, dtype=np.float64
        )

    def _result(
        self,
        job: _Job,
        page: _Page,
        native_ranks: np.ndarray[Any, np.dtype[np.int64]] | None,
        took: dict[str, float],
    ) -> SearchResult:
        request, scores = job.request, page.top.scores
        shown = slice(None)
        if request.min_score is not None:
            shown = slice(int((scores.total >= request.min_score).sum()))
        rows = page.top.rows
        end = job.offset + len(rows)
        total = len(self.index) if job.allowed is None else len(job.allowed)
        more = end < total and len(rows[shown]) == len(rows)
        return SearchResult(
            query=request.query,
            mode=Ranking.SPATIAL if job.ranked else Ranking.NATIVE,
            parsed=job.parsed,
            ranked_relations=job.ranked,
            readout=job.readout if job.ranked else None,
            weight=job.weight if job.ranked else 0.0,
            hits=tuple(self._hits(job, page, native_ranks))[shown],
            warnings=job.warnings,
            total=total,
            next_cursor=f"{end:x}.{self._fingerprint(request)}" if more and len(rows) else None,
            took_ms=took,
        )

    def _hits(
        self, job: _Job, page: _Page, native_ranks: np.ndarray[Any, np.dtype[np.int64]] | None
    ) -> Iterator[Hit]:
        scores: Scores = page.top.scores
        ids = self.index.images["id"].take(page.top.rows).to_pylist()
        paths = self.index.images["path"].take(page.top.rows).to_pylist()
        for i, (image_id, path) in enumerate(zip(ids, paths, strict=True)):
            rank = job.offset + i + 1
            readout = (job.readout if i < page.candidates else Readout.MOMENT) if job.ranked else None
            yield Hit(
                id=image_id,
                path=path,
                rank=rank,
                score=float(scores.total[i]),
                native_score=float(scores.native[i]),
                spatial_score=float(scores.spatial[i]),
                native_rank=rank if native_ranks is None else int(native_ranks[i]),
                readout=readout,
                contributions=tuple(page.parts[i].tolist()) if len(page.parts) else (),
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
            request.readout and request.readout.value,
            request.where,
            *(files[role].sha256 for role in ("native", "sketch", "grid", "ledger") if role in files),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _key(request: SearchRequest) -> tuple[Any, ...]:
    """What the reading of a query and its vectors depend on."""
    return request.query, request.mode, request.depth, request.weight, request.readout


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
