"""The manifest: what an index is, in one file. Read without arrays or FAISS, so asking for facts costs nothing."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from indexer.encoder import EncoderSpec
from indexer.errors import IndexerError
from indexer.sketch import Precision

FORMAT = 1
REFIT_GROWTH = 2.0
MANIFEST = "manifest.json"
REBUILD = "Build the index again in a new folder: beside index IMAGES --out FOLDER."
"""What to do about a damaged index."""


_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO)


class IndexMissing(IndexerError):
    """There is no finished index at the place that was named."""


class IndexDamaged(IndexerError):
    """A file of the index is not what the manifest says."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as the manifest knows it."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where a sketch's basis and lambda come from.

    Attributes
    ----------
    lam : float
        std(native) / std(displacement) over random word pairs; the unit of displacement.
    native_std, displacement_std : float
        Root mean square over the pairs of the standard deviation over the images.
    images : int
        Images of the collection the basis and lambda were fitted on.
    pairs : int
        Word pairs.
    collection : int
        Files in the collection at that time; 0 where that was not written down.
    """

    lam: float
    native_std: float
    displacement_std: float
    images: int
    pairs: int
    collection: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index is, in one file.

    Attributes
    ----------
    format : int
        Version of the folder's layout.
    created : str
        UTC, ISO 8601.
    image_root : str
        Absolute path of the indexed folder.
    encoder : EncoderSpec
    k : int
        Sketch components an axis.
    precision : Precision
    calibration : Calibration
    indexed : int
        Images with vectors.
    unreadable : Mapping[str, int]
        Files without, by reason.
    files : Mapping[str, DataFile]
        ``native``, ``sketch``, ``basis``, ``ledger``, and ``grid`` where there is one.
    jpeg_reduce_to : int or None
        Short side that JPEGs were reduced to while they were decoded; None where every pixel was.
    """

    format: int
    created: str
    image_root: str
    encoder: EncoderSpec
    k: int
    precision: Precision
    calibration: Calibration
    indexed: int
    unreadable: Mapping[str, int]
    files: Mapping[str, DataFile]
    jpeg_reduce_to: int | None = None

    @property
    def refit_due(self) -> bool:
        """Whether the collection has outgrown the sample that basis and lambda were fitted on.

        They stay as they are while pictures come and go, and were fitted on a fair sample of what was there. Once
        most pictures have come since, they describe another collection: ``beside index --refit`` fits them anew.
        """
        return self.indexed > REFIT_GROWTH * max(self.calibration.collection, self.calibration.images)

    def to_json(self) -> str:
        """As written to disk."""
        calibration = asdict(self.calibration)
        calibration["lambda"] = calibration.pop("lam")
        values = {
            "format": self.format,
            "created": self.created,
            "image_root": self.image_root,
            "encoder": self.encoder.to_dict(),
            "sketch": {"k": self.k, "precision": self.precision.value} | calibration,
            "counts": {"indexed": self.indexed, "unreadable": dict(self.unreadable)},
            "decoding": {"jpeg_reduce_to": self.jpeg_reduce_to},
            "files": {role: asdict(file) for role, file in self.files.items()},
        }
        return json.dumps(values | {"sha256": _digest(values)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError, KeyError, TypeError
            It is something else, or was changed since.
        """
        values: dict[str, Any] = json.loads(text)
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}; this version reads format {FORMAT}")
        written = values.pop("sha256", None)  # manifests of the first builds have none
        if written is not None and written != _digest(values):
            raise ValueError("values that were changed after it was written")
        sketch = dict(values["sketch"])
        return cls(
            format=values["format"],
            created=values["created"],
            image_root=values["image_root"],
            encoder=EncoderSpec.from_dict(values["encoder"]),
            k=sketch.pop("k"),
            precision=Precision(sketch.pop("precision")),
            calibration=Calibration(lam=sketch.pop("lambda"), **sketch),
            indexed=values["counts"]["indexed"],
            unreadable=values["counts"]["unreadable"],
            files={role: DataFile(**file) for role, file in values["files"].items()},
            jpeg_reduce_to=values.get("decoding", {}).get("jpeg_reduce_to"),
        )


def _digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest's values, however they are laid out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def unreadable_file(path: Path, error: OSError) -> IndexDamaged:
    """The error for a file of an index that the system does not let us read; only what is gone needs a new index."""
    fix = REBUILD if error.errno in _GONE else "See to it that this user may read it, and try again."
    return IndexDamaged(f"{path} cannot be read", came=error.strerror or str(error), fix=fix)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest alone.

    Raises
    ------
    IndexMissing, IndexDamaged
    """
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise IndexMissing(
            f"{folder} is not an index",
            expected=f"a folder with {MANIFEST}",
            fix=f"Build one: beside index IMAGES --out {folder}",
        ) from None
    except OSError as error:
        raise unreadable_file(path, error) from error
    except UnicodeDecodeError as error:
        raise IndexDamaged(f"{path} cannot be read", came=str(error), fix=REBUILD) from error
    try:
        return Manifest.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexDamaged(
            f"{path} is not a manifest as this version writes it", came=str(error), fix=REBUILD
        ) from error
