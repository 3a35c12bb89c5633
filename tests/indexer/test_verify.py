from __future__ import annotations

from pathlib import Path

from indexer.build import build_index
from indexer.store import open_index
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


def test_pictures_that_left_are_a_fact_not_a_problem(tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 6)
    build_index(images, tmp_path / "out", TinyEncoder())
    (images / "0" / "0.png").unlink()
    report = verify_index(tmp_path / "out", TinyEncoder())
    assert (report.missing, report.embedded, report.problems) == (1, 5, ())
