from __future__ import annotations

import json
import shutil
from pathlib import Path

from indexer.build import build_index
from indexer.manifest import MANIFEST
from indexer.store import LEDGER, open_index
from indexer.verify import verify_index
from tests.indexer.test_build import gallery
from tests.support import TinyEncoder


def test_a_sound_index_has_no_problems(tmp_path: Path) -> None:
    build_index(gallery(tmp_path / "in", 20), tmp_path / "out", TinyEncoder())
    report = verify_index(tmp_path / "out", TinyEncoder(), sample=8)
    assert report.problems == ()
    assert (report.indexed, report.embedded, report.missing) == (20, 8, 0)
    assert report.lowest_cosine is not None
    assert report.lowest_cosine > 0.9999


def test_another_encoders_vectors_are_found_out(tmp_path: Path) -> None:
    build_index(gallery(tmp_path / "in", 5), tmp_path / "out", TinyEncoder())
    report = verify_index(tmp_path / "out", TinyEncoder(seed=1))
    assert len(report.problems) == 5
    assert "cosine" in report.problems[0]


def test_damage_is_reported_by_name(tmp_path: Path) -> None:
    build_index(gallery(tmp_path / "in", 5), tmp_path / "out", TinyEncoder())
    name = open_index(tmp_path / "out").manifest.files["sketch"].name
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    (problem,) = verify_index(tmp_path / "out", TinyEncoder()).problems
    assert name in problem


def test_an_edited_manifest_is_damage(tmp_path: Path) -> None:
    build_index(gallery(tmp_path / "in", 5), tmp_path / "out", TinyEncoder())
    path = tmp_path / "out" / MANIFEST
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values, sort_keys=True))  # laid out anew, the same
    assert verify_index(tmp_path / "out").problems == ()
    values["sketch"]["lambda"] *= 2
    path.write_text(json.dumps(values))
    (problem,) = verify_index(tmp_path / "out").problems
    assert "changed after it was written" in problem
    values["sketch"]["lambda"] /= 2
    del values["sha256"]  # as the first builds wrote it
    path.write_text(json.dumps(values))
    assert verify_index(tmp_path / "out").problems == ()


def test_a_copied_ledger_is_held_against_the_real_one(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 5)
    build_index(images, tmp_path / "out", TinyEncoder())
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert verify_index(tmp_path / "copy").problems == ()
    (tmp_path / "copy" / LEDGER).write_bytes(b"another table")
    (problem,) = verify_index(tmp_path / "copy").problems
    assert f"{LEDGER} is not the ledger" in problem
    build_index(images, tmp_path / "copy", TinyEncoder())
    assert verify_index(tmp_path / "copy").problems == ()


def test_pictures_that_left_are_a_fact_not_a_problem(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 6)
    build_index(images, tmp_path / "out", TinyEncoder())
    (images / "0" / "0.png").unlink()
    report = verify_index(tmp_path / "out", TinyEncoder())
    assert (report.missing, report.embedded, report.problems) == (1, 5, ())
