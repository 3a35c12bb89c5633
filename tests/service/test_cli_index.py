"""The commands that make and take out vectors: index with its sources, export, embed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import indexer.load
from indexer.store import open_index
from service.cli import run
from tests.support import TinyEncoder, paint_gallery


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer.load, "load_encoder", lambda *_, **__: TinyEncoder())
    monkeypatch.setattr(indexer.load, "load_encoder_for", lambda *_, **__: TinyEncoder())


@pytest.fixture
def built(tmp_path: Path, capsys: pytest.CaptureFixture) -> Path:
    paint_gallery(tmp_path / "images", 20)
    command = ["index", str(tmp_path / "images"), "--out", str(tmp_path / "index"), "--workers", "0"]
    assert run([*command, "--k", "8"]) == 0
    capsys.readouterr()
    return tmp_path / "index"


def test_index_takes_a_list_from_elsewhere(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "some.txt").write_text("0000.png\n0001.png\n")
    command = ["index", str(tmp_path / "some.txt"), "--out", str(tmp_path / "some"), "--workers", "0"]
    assert run([*command, "--root", str(tmp_path / "images"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["indexed"] == 2
    (tmp_path / "wrong.csv").write_text("name\n0000.png\n")
    assert run(["index", str(tmp_path / "wrong.csv"), "--out", str(tmp_path / "other")]) == 2
    assert "no column of paths: expected path, came name" in capsys.readouterr().err


def test_names_that_are_not_utf8_are_shown_and_no_index_gets_one(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    odd, out = tmp_path / os.fsdecode(b"caf\xe9"), tmp_path / "index"
    paint_gallery(odd, 3)
    assert run(["index", str(odd), "--out", str(out), "--workers", "0"]) == 0
    assert run(["info", str(out)]) == 0
    assert f"from        {tmp_path}/caf%E9" in capsys.readouterr().out
    assert run(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["image_root"] == f"{tmp_path}/caf%E9"
    assert run(["index", str(odd), "--out", str(odd / "index"), "--workers", "0"]) == 2
    assert "caf%E9/index cannot be an index folder: expected a path in UTF-8" in capsys.readouterr().err
    assert not (odd / "index").exists()
    out.rename(odd / "index")
    assert run(["verify", str(odd / "index"), "--no-embed"]) == 2
    assert "cannot be an index folder" in capsys.readouterr().err


def test_refit_is_said_to_be_due_and_done(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    paint_gallery(tmp_path / "images", 41)
    command = ["index", str(tmp_path / "images"), "--out", str(built), "--workers", "0"]
    assert run(command) == 0
    assert "index them with --refit once" in capsys.readouterr().err
    assert open_index(built).manifest.refit_due
    assert run([*command, "--k", "9"]) == 2
    assert "another sketch: expected k 8, int8, came k 9, int8" in capsys.readouterr().err
    assert run([*command, "--refit", "--k", "9"]) == 0
    out, err = capsys.readouterr()
    assert "41 encoded, 0 unchanged" in out
    assert err == ""
    manifest = open_index(built).manifest
    assert (manifest.k, manifest.calibration.images, manifest.refit_due) == (9, 41, False)


def test_export_and_embed_fit_together(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["export", str(built), "--out", str(tmp_path / "vectors")]) == 0
    assert "20 vectors" in capsys.readouterr().out
    vectors = np.load(tmp_path / "vectors" / "vectors.npy")
    index = open_index(built)
    path = tmp_path / "images" / index.images["path"][3].as_py()
    text = "a cup " * 200
    assert run(["embed", str(path), text, "--index", str(built)]) == 0
    image, words = map(json.loads, capsys.readouterr().out.splitlines())
    np.testing.assert_allclose(image["joint"], vectors[3], atol=1e-6)
    np.testing.assert_allclose(image["vector"], vectors[3][: len(image["vector"])], atol=1e-6)
    assert words["text"] == text
    assert np.linalg.norm(words["vector"]) == pytest.approx(1, abs=1e-5)
    assert run(["export", str(built), "--out", str(tmp_path / "images")]) == 2
    assert "holds something else" in capsys.readouterr().err


def test_draft_is_written_down_and_kept(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    command = ["index", str(tmp_path / "images"), "--out", str(built), "--workers", "0"]
    assert open_index(built).manifest.jpeg_reduce_to is None
    assert run([*command, "--draft"]) == 2
    assert "was decoded in full. Leave the option out, or add --refit" in capsys.readouterr().err
    assert run([*command, "--draft", "--refit"]) == 0
    assert open_index(built).manifest.jpeg_reduce_to == 2 * 64
    assert run(command) == 0
    assert open_index(built).manifest.jpeg_reduce_to == 2 * 64
