"""Errors of the indexer: one base to catch, few leaves, each keeping its fields.

A message says what is wrong, what was expected, what came, what is allowed and what to do, on one line.
Errors cross process borders (decoding runs in worker processes), so every leaf must survive pickling with
its fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class IndexerError(Exception):
    """Base of everything the indexer raises on purpose.

    Parameters
    ----------
    problem : str
        What is wrong, naming the thing it is wrong with.
    expected, came : object, optional
        What was needed and what was there instead.
    allowed : iterable, optional
        Every value that would have been accepted, where that is a short closed list.
    fix : str, optional
        What the reader can do about it, as a full sentence.

    Examples
    --------
    >>> print(IndexerError("bad grid", expected="12 x 12", came="7 x 7", fix="Build the index again."))
    bad grid: expected 12 x 12, came 7 x 7. Build the index again.
    """

    def __init__(
        self,
        problem: str,
        *,
        expected: object = None,
        came: object = None,
        allowed: Iterable[object] = (),
        fix: str | None = None,
    ) -> None:
        self.problem = problem
        self.expected = expected
        self.came = came
        self.allowed = tuple(allowed)
        self.fix = fix
        facts = []
        if expected is not None:
            facts.append(f"expected {expected}")
        if came is not None:
            facts.append(f"came {came}")
        if self.allowed:
            facts.append(f"allowed: {', '.join(map(str, self.allowed))}")
        message = f"{problem}: {', '.join(facts)}" if facts else problem
        super().__init__(f"{message.rstrip('.')}. {fix}" if fix else message)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own recipe calls the class with the message alone, which no leaf accepts.
        return _restore, (type(self), self.args), self.__dict__


def _restore(cls: type[IndexerError], args: tuple[Any, ...]) -> IndexerError:
    return cls.__new__(cls, *args)


class UnreadableReason(StrEnum):
    """Why a file did not become a picture; stored as is in the ledger, counted in the summary."""

    MISSING = "missing"
    """Nothing is there, or a link leads nowhere."""
    PERMISSION = "permission"
    """The operating system refuses to let us read it."""
    NOT_A_FILE = "not_a_file"
    """A directory, socket, pipe or device under a picture's name."""
    EMPTY = "empty"
    """Zero bytes."""
    NOT_AN_IMAGE = "not_an_image"
    """No decoder knows the contents."""
    UNSUPPORTED_FORMAT = "unsupported_format"
    """A picture in a format whose decoder is not installed."""
    TOO_MANY_PIXELS = "too_many_pixels"
    """More pixels than the cap, read from the header, before any memory is taken."""
    TRUNCATED = "truncated"
    """The file ends before the picture does."""
    BROKEN = "broken"
    """The decoder gave up for another reason."""
    TIMED_OUT = "timed_out"
    """Reading or decoding did not end; its process was killed. Tried again on the next run."""
    DECODER_DIED = "decoder_died"
    """Its process crashed or ran out of memory, twice. Tried again on the next run."""


class UnreadableImage(IndexerError):
    """A file that cannot be decoded: counted and named, never fatal by default.

    Parameters
    ----------
    reason : UnreadableReason
        The closed class of the failure.
    detail : str
        What exactly was found.
    name : str, optional
        The file, as the user knows it; None for bytes that came without a name.
    fix : str, optional
        What to do, where there is something to do.
    """

    def __init__(
        self, reason: UnreadableReason, detail: str, *, name: str | None = None, fix: str | None = None
    ) -> None:
        self.reason = reason
        self.detail = detail
        self.name = name
        where = f"{name}: " if name else ""
        super().__init__(f"{where}{reason.value.replace('_', ' ')}: {detail}", fix=fix)


class UnusableFolder(IndexerError):
    """The folder of pictures itself cannot be read, so there is nothing to begin with.

    Parameters
    ----------
    folder : str
        The folder as the user wrote it.
    came : str
        What is there instead.
    """

    def __init__(self, folder: str, came: str) -> None:
        self.folder = folder
        super().__init__(
            folder, expected="a folder of pictures", came=came, fix="Name a folder that you can read."
        )


class BadName(IndexerError):
    """A relative path or an image id that no scan can have written."""
