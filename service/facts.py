"""What an index is, for people and programs. Read from the manifest alone."""

from __future__ import annotations

from typing import Any

from indexer.manifest import Manifest
from indexer.scan import escape_path


def brief_facts(manifest: Manifest) -> dict[str, Any]:
    """Facts that go with every answer."""
    return {
        "images": manifest.indexed,
        "encoder": manifest.encoder.name,
        "created": manifest.created,
        "generation": manifest.files["native"].sha256[:12],
    }


def index_facts(manifest: Manifest) -> dict[str, Any]:
    """Facts of an index as plain JSON values."""
    encoder = manifest.encoder
    size = {role: file.bytes for role, file in manifest.files.items()}
    return {
        "format": manifest.format,
        "created": manifest.created,
        "images": manifest.indexed,
        "unreadable": dict(manifest.unreadable),
        "image_root": escape_path(manifest.image_root),
        "encoder": encoder.to_dict(),
        "sketch": {
            "k": manifest.k,
            "precision": manifest.precision.value,
            "lambda": manifest.calibration.lam,
            "fitted_on": manifest.calibration.images,
            "refit_due": manifest.refit_due,
        },
        "jpeg_reduce_to": manifest.jpeg_reduce_to,
        "bytes": size,
        "generation": manifest.files["native"].sha256[:12],
    }
