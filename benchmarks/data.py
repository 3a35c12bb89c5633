"""Photographs with captions, boxes and pairs, as a data folder holds them: ``images/`` and ``photos.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Box:
    """One object, in fractions of the picture."""

    name: str
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def area(self) -> float:
        """Fraction of the picture."""
        return (self.x1 - self.x0) * (self.y1 - self.y0)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two objects that are alone of their kind, and where the first stands seen from the second.

    Attributes
    ----------
    a, b : str
    dx, dy : float
        Centre of a minus centre of b, in fractions of the picture; x right, y down.
    lr : ``left``, ``right`` or None
    ab : ``above``, ``below`` or None
    min_area : float
        Of the smaller box, as a fraction of the picture.
    """

    a: str
    b: str
    dx: float
    dy: float
    lr: Literal["left", "right"] | None
    ab: Literal["above", "below"] | None
    min_area: float


@dataclass(frozen=True, slots=True)
class Photo:
    """One photograph."""

    path: Path
    captions: tuple[str, ...]
    boxes: tuple[Box, ...]
    pairs: tuple[Pair, ...]


def load_photos(folder: Path) -> list[Photo]:
    """Read a data folder.

    Raises
    ------
    SystemExit
        It is not there, or empty: a benchmark's user gets one line, not a traceback.
    """
    try:
        lines = (folder / "photos.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SystemExit(
            f"no data in {folder}: expected photos.jsonl and images/; name a folder with --data"
        ) from None
    if not lines:
        raise SystemExit(f"no photographs in {folder}: photos.jsonl is empty")
    return [photo_of(folder, json.loads(line)) for line in lines]


def photo_of(folder: Path, row: Mapping[str, Any]) -> Photo:
    """A line of ``photos.jsonl`` as a value."""
    return Photo(
        path=folder / "images" / row["file"],
        captions=tuple(row["captions"]),
        boxes=tuple(Box(*box) for box in row["boxes"]),
        pairs=tuple(
            Pair(p["a"], p["b"], p["dx"], p["dy"], p["lr"], p["ab"], p["min_area"]) for p in row["pairs"]
        ),
    )
