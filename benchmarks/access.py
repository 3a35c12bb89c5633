"""Is the direction in the pooled vector, and can a text reach it? Measured on photographs and their mirror images.

A question is about two things of one photograph that stand side by side: is the first on the right? Everything chosen
(a probe's penalty, a caption, a template) is chosen on one set of photographs and reported on another.

Axes: Q questions, N photographs, C captions, D embedding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Photo, load_photos
from benchmarks.gallery import Seen, look
from benchmarks.geometry import SHUFFLES, Question, questions_of
from benchmarks.probes import centred, choose_strength, cross_fit, flip_odd, gram, right_share, told
from benchmarks.record import Metric, share
from indexer.encoder import Encoder, phrase_text

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

TEMPLATES = (
    ("{a} to the left of {b}", "{a} to the right of {b}"),
    ("{a} left of {b}", "{a} right of {b}"),
    ("{a} on the left and {b} on the right", "{a} on the right and {b} on the left"),
    ("on the left {a}, on the right {b}", "on the right {a}, on the left {b}"),
    ("{a} is at the left side of {b}", "{a} is at the right side of {b}"),
    ("a photo of {a} to the left of {b}", "a photo of {a} to the right of {b}"),
)
NULL_DRAWS = 200
"""Random truths, for how well the best of so many captions reads by luck."""


class TextBank:
    """Text vectors, each text encoded once; kept in a file between runs where one is named."""

    def __init__(self, encoder: Encoder, file: Path | None = None) -> None:
        self._encoder, self._file = encoder, file
        self._vectors: dict[str, Floats] = {}
        if file is not None and file.exists():
            with np.load(file) as kept:
                self._vectors = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Vectors of some texts, (T, D)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors |= zip(new, self._encoder.encode_texts(new).vectors, strict=True)
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                vectors = np.stack(list(self._vectors.values()))
                np.savez(self._file, texts=np.array(list(self._vectors)), vectors=vectors)
        return np.stack([self._vectors[text] for text in texts])

    def words(self, things: Sequence[str]) -> Floats:
        """Vectors of things in the encoder's own template, (T, D)."""
        return self([phrase_text(self._encoder.spec.template, thing) for thing in things])


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Questions about photographs, and what the image tower made of these.

    Attributes
    ----------
    questions : Q Question
    seen : Seen
        N photographs.
    mirrored : Seen
        Their mirror images.
    sign : (Q,) float64
        +1 where the first thing is on the right.
    larger : (Q,) float64
        +1 where the first thing has the larger box, else -1.
    """

    questions: Sequence[Question]
    seen: Seen
    mirrored: Seen
    sign: Doubles
    larger: Doubles

    def odd(self) -> Doubles:
        """What a mirror changes in the pooled vectors, (N, D)."""
        return flip_odd(self.seen.pooled, self.mirrored.pooled)

    def moment_odd(self) -> Doubles:
        """The same of the moments across, (N, D)."""
        return flip_odd(self.seen.moments()[:, 0], self.mirrored.moments()[:, 0])

    @property
    def photo(self) -> NDArray[np.intp]:
        """The photograph of each question, (Q,)."""
        return np.array([q.photo for q in self.questions], dtype=np.intp)


def ask(encoder: Encoder, folder: Path, *, limit: int | None = None, cache: Path | None = None) -> Asked:
    """Look at those photographs of a data folder that have two things side by side.

    Raises
    ------
    SystemExit
        None has.
    """
    photos = [photo for photo in load_photos(folder) if _beside([photo])][:limit]
    questions = _beside(photos)
    if not questions:
        raise SystemExit(f"no photograph of {folder} shows two things side by side")
    boxes = [{box.name: box.area for box in photo.boxes} for photo in photos]
    return Asked(
        questions,
        look(encoder, photos, cache=cache),
        look(encoder, photos, mirrored=True, cache=cache),
        np.array([1.0 if q.relation == "right" else -1.0 for q in questions]),
        np.array([1.0 if boxes[q.photo][q.a] > boxes[q.photo][q.b] else -1.0 for q in questions]),
    )


def _beside(photos: Sequence[Photo]) -> list[Question]:
    return [q for q in questions_of(photos) if q.axis == "lr"]


def caption_pool(data: Path, limit: int | None = None) -> tuple[list[str], dict[str, int]]:
    """Every caption and statement of a data folder, once each, and how many came from where."""
    photos = [photo for part in ("train", "dev") for photo in load_photos(data / "coco" / part)]
    vsr = data / "phrases" / "vsr.jsonl"
    lines = vsr.read_text(encoding="utf-8").splitlines() if vsr.exists() else []
    sources = {
        "captions": [caption for photo in photos for caption in photo.captions],
        "vsr": [json.loads(line)["text"] for line in lines],
    }
    pool: dict[str, None] = {}
    counts = {}
    for name, texts in sources.items():
        before = len(pool)
        pool |= dict.fromkeys(texts[:: max(1, len(texts) // limit)] if limit else texts)
        counts[name] = len(pool) - before
    return list(pool), counts


def disjoint(train: Sequence[Question], test: Sequence[Question]) -> NDArray[np.bool_]:
    """Which of `train` may train for which of `test`, (len(test), len(train)): those with no thing in common."""
    return np.array([[not {q.a, q.b} & {t.a, t.b} for t in train] for q in test])


# Probes ----------------------------------------------------------------------------------------------------


def probes(train: Asked, test: Asked, differences: tuple[Doubles, Doubles]) -> list[Metric]:
    """What linear probes read of the pooled vector, of its flip-odd part and of the moment's.

    Each is fitted to those questions of `train` that share no thing with the one it answers. Its penalty is chosen on
    `train` by the same rule, where a question does not train for others about its own photograph either; and so is
    what it is told of the two things, for the figure that a verdict rests on. That the moment, which has the direction
    for certain, is read by the same procedure says how much the procedure can find.

    Parameters
    ----------
    differences : pair of arrays (Q, D)
        Of both sets, the first word less the second.
    """
    n, every = len(train.questions), [*train.questions, *test.questions]
    sign = np.concatenate([train.sign, test.sign])
    others = told(np.concatenate(differences), np.concatenate([train.larger, test.larger]))
    allowed = np.zeros((len(every), len(every)), dtype=bool)
    allowed[:, :n] = disjoint(train.questions, every)
    among = allowed[:n, :n] & (train.photo[:, None] != train.photo)
    allowed[:n] = False  # the choice is made; what is reported is about the others

    def fitted(name: str, products: Doubles) -> tuple[float, Metric]:
        choice, strength = choose_strength(products[:n, :n], sign[:n], among)
        scores = cross_fit(products, sign, allowed, strengths=[strength])[n:]
        return choice, _share(name, right_share(scores, test.sign), test)

    metrics = [fitted("photo_object_identity_null", others["words"])[1]]
    both = (train, test)
    views = {
        "pooled": centred(np.concatenate([asked.seen.pooled[asked.photo] for asked in both])),
        # What is odd has no mean.
        "flip_odd": np.concatenate([asked.odd()[asked.photo] for asked in both]),
        "moment_flip_odd": np.concatenate([asked.moment_odd()[asked.photo] for asked in both]),
    }
    for view, features in views.items():
        products = gram(features)
        found = [fitted(f"photo_{view}_by_{of}", products * other) for of, other in others.items()]
        best = max(found, key=lambda pair: pair[0])[1]
        metrics += [replace(best, name=f"photo_{view}_probe"), *(metric for _, metric in found)]
    return metrics


# Readers without training ------------------------------------------------------------------------------------


def readers(test: Asked, bank: TextBank, difference: Doubles, *, seed: int = 0) -> list[Metric]:
    """Native score and moment: of two captions the true one, of a photograph and its mirror image the right one."""
    p = test.photo
    pooled, odd = test.seen.pooled[p].astype(np.float64), test.odd()[p]
    moment, moment_odd = test.seen.moments()[p, 0].astype(np.float64), test.moment_odd()[p]
    left, right = (_said(bank, side, test.questions) for side in TEMPLATES[0])
    statement = np.where(test.sign[:, None] > 0, right, left)
    rng = np.random.default_rng(seed)
    things = sorted({thing for q in test.questions for thing in (q.a, q.b)})
    wrong = _wrong([(q.a, q.b) for q in test.questions], things, rng)
    vectors = dict(zip(things, bank.words(things).astype(np.float64), strict=True))
    other = np.stack([vectors[a] - vectors[b] for a, b in wrong])
    shuffles = np.stack(
        [test.seen.shuffled(n, SHUFFLES)[:, 0] for n in range(len(test.seen.pooled))]
    )  # (N, S, D)
    shuffled = right_share(np.einsum("qsd,qd->sq", shuffles[p], difference), test.sign)
    one = np.linalg.norm(test.seen.pooled - test.mirrored.pooled, axis=1).mean()
    apart = np.linalg.norm(test.seen.pooled - np.roll(test.seen.pooled, 1, axis=0), axis=1).mean()
    return [
        _share("photo_native", right_share(_dot(pooled, right - left), test.sign), test),
        _share("photo_moment", right_share(_dot(moment, difference), test.sign), test),
        _share("mirror_native", right_share(_dot(odd, statement), np.ones(len(p))), test),
        _share("mirror_moment", right_share(_dot(moment_odd, difference), test.sign), test),
        _share("photo_moment_wrong_words", right_share(_dot(moment, other), test.sign), test),
        _share("photo_moment_shuffled", shuffled.mean(axis=0), test),
        Metric("photo_moment_shuffled_p95", float(np.quantile(shuffled.mean(axis=1), 0.95)), n=len(p)),
        Metric("flip_effect", float(one / apart), "ratio", n=len(test.seen.pooled)),
    ]


def _dot(one: NDArray[np.floating], other: NDArray[np.floating]) -> Doubles:
    return np.asarray(np.einsum("qd,qd->q", one, other), dtype=np.float64)


def _wrong(
    pairs: Sequence[tuple[str, str]], things: Sequence[str], rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Two things that a question is not about, for each."""
    found = []
    for pair in pairs:
        others = [thing for thing in things if thing not in pair] or list(things)
        one, other = rng.permutation(len(others))[:2] if len(others) > 1 else (0, 0)
        found.append((others[one], others[other]))
    return found


# Search for a caption ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """What a search through captions found.

    Attributes
    ----------
    best : str
    best_in : float
        Share of the photographs it was chosen on that it reads rightly.
    luck : float
        95th percentile of that share where the truth is drawn at random.
    unseen : (Q,) float64
        One for each question of other photographs that it reads rightly.
    """

    best: str
    best_in: float
    luck: float
    unseen: Doubles


def search_captions(
    train: Asked, test: Asked, texts: Sequence[str], vectors: Floats, *, seed: int = 0
) -> Search:
    """Find the caption whose native score best tells on which side the larger thing is.

    A caption reads a photograph by whether it scores it above its mirror image; the opposite reading counts as well,
    and which of the two is meant is decided with the caption.

    Parameters
    ----------
    texts, vectors : C captions and (C, D) float32
    """
    decisions = np.sign(train.odd()[train.photo] @ vectors.T.astype(np.float64))  # (Q, C)
    wanted = train.sign * train.larger
    agreement = wanted @ decisions / len(wanted)
    best = int(np.argmax(np.abs(agreement)))
    rng = np.random.default_rng(seed)
    # Photographs change sign as a whole: the questions of one are not independent.
    flips = rng.choice([-1.0, 1.0], (NULL_DRAWS, len(train.seen.pooled)))[:, train.photo] * wanted
    lucky = np.abs(flips @ decisions).max(axis=1) / len(wanted)
    scores = test.odd()[test.photo] @ vectors[best].astype(np.float64) * np.sign(agreement[best])
    return Search(
        texts[best],
        float(0.5 + np.abs(agreement[best]) / 2),
        float(0.5 + np.quantile(lucky, 0.95) / 2),
        right_share(scores, test.sign * test.larger),
    )


def search_templates(train: Asked, test: Asked, bank: TextBank) -> Search:
    """Find the template whose two statements best tell the true one, photograph against mirror image."""
    margins = []
    for left, right in TEMPLATES:
        pair = []
        for asked in (train, test):
            odd = asked.odd()[asked.photo]
            pair.append(_dot(odd, _said(bank, right, asked.questions) - _said(bank, left, asked.questions)))
        margins.append(pair)
    shares = [float(right_share(one, train.sign).mean()) for one, _ in margins]
    best = int(np.argmax(shares))
    unseen = right_share(margins[best][1], test.sign)
    return Search(TEMPLATES[best][0], shares[best], float("nan"), unseen)


def _said(bank: TextBank, template: str, questions: Sequence[Question]) -> Doubles:
    return bank([_say(template, q) for q in questions]).astype(np.float64)


def _say(template: str, q: Question) -> str:
    return template.format(a=phrase_text("a {}", q.a), b=phrase_text("a {}", q.b))


# All of it ---------------------------------------------------------------------------------------------------


def measure_access(
    encoder: Encoder, data: Path, bank: TextBank, *, quick: int | None = None, cache: Path | None = None
) -> tuple[list[Metric], dict[str, object]]:
    """Everything about photographs: metrics, and what was found by searching.

    Parameters
    ----------
    data : Path
        Holds ``coco/train``, ``coco/dev`` and, if there, ``phrases/vsr.jsonl``.
    quick : int, optional
        Photographs a set, and four times as many captions a source.
    """
    keep = None if cache is None else cache / "beside"
    train, test = (ask(encoder, data / "coco" / part, limit=quick, cache=keep) for part in ("train", "dev"))
    one, other = (_differences(asked, bank) for asked in (train, test))
    pool, counts = caption_pool(data, None if quick is None else 4 * quick)
    before = len(pool)
    pool = list(
        dict.fromkeys([*pool, *(_say(s, q) for pair in TEMPLATES for s in pair for q in test.questions)])
    )
    counts["templates"] = len(pool) - before
    caption = search_captions(train, test, pool, bank(pool))
    template = search_templates(train, test, bank)
    metrics = [
        *readers(test, bank, other),
        *probes(train, test, (one, other)),
        Metric("caption_best_in", caption.best_in, n=len(train.questions)),
        Metric("caption_luck_p95", caption.luck, n=len(train.questions)),
        _share("caption_unseen", caption.unseen, test),
        Metric("caption_pool", len(pool), "count"),
        Metric("template_best_in", template.best_in, n=len(train.questions)),
        _share("template_unseen", template.unseen, test),
    ]
    facts: dict[str, object] = {
        "photographs": {"chosen_on": len(train.seen.pooled), "reported_on": len(test.seen.pooled)},
        "questions": {"chosen_on": len(train.questions), "reported_on": len(test.questions)},
        "caption_pool": counts,
        "best_caption": caption.best,
        "best_template": template.best,
    }
    return metrics, facts


def _differences(asked: Asked, bank: TextBank) -> Doubles:
    one = bank.words([q.a for q in asked.questions]).astype(np.float64)
    return one - bank.words([q.b for q in asked.questions])


def _share(name: str, values: Doubles, asked: Asked) -> Metric:
    return share(name, values.tolist(), asked.photo.tolist())
