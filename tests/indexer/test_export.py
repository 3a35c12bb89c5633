from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import indexer.load
from indexer.export import (
    RECIPE,
    ExportFormat,
    ExportRefused,
    displacement_spread,
    export_index,
    joint_vector,
)
from indexer.store import Index
from service.query import Readout
from service.reference import Reference
from service.search import Searcher
from tests.support import SmallParser, TinyEncoder, index_folder, paint_gallery, vector_index

QUERIES = [
    ("red left of blue", "red", "blue", -1, 0),
    ("green right of orange", "green", "orange", 1, 0),
    ("a yellow above a red", "yellow", "red", 0, -1),
    ("purple below blue", "purple", "blue", 0, 1),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("export")
    paint_gallery(folder / "images", 80)
    return index_folder(folder / "images", folder / "index")


def run_recipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(indexer.load, "load_encoder_for", lambda spec: TinyEncoder())
    names: dict[str, Any] = {}
    exec(RECIPE, names)
    return names


def test_the_recipe_has_ten_lines_and_ranks_as_we_do(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_index(index, tmp_path / "out", ExportFormat.NPY)
    assert len(RECIPE.splitlines()) == 10
    assert RECIPE in (tmp_path / "out" / "README.md").read_text()
    recipe = run_recipe(tmp_path / "out", monkeypatch)
    vectors, ids = recipe["vectors"], pq.read_table("images.parquet")["id"].to_pylist()
    anywhere = faiss.IndexFlatIP(vectors.shape[1])
    anywhere.add(vectors)
    searcher = Searcher(index, TinyEncoder(), SmallParser())
    for text, *relation in QUERIES:
        hits = searcher.search(text, k=len(index), readout=Readout.MOMENT).hits
        ours = {hit.id: hit.score for hit in hits}
        query = recipe["joint_query"](text, *relation)
        for scores in (vectors @ query, _scores(anywhere, query)):
            theirs = dict(zip(ids, scores.tolist(), strict=True))
            assert max(abs(theirs[id_] - ours[id_]) for id_ in ids) < 1e-5
            # The same order, up to pictures whose scores are equal within rounding.
            ranked = [ours[id_] for id_ in sorted(ids, key=lambda id_: -theirs[id_])]
            np.testing.assert_allclose(ranked, [hit.score for hit in hits], atol=1e-5)
        assert {ids[row] for row in np.argsort(-vectors @ query)[:1]} <= {
            hit.id for hit in hits if hit.score > hits[0].score - 1e-5
        }
    assert len(recipe["best"]) == 10


def test_the_unit_of_a_displacement_is_the_searchers(tmp_path: Path) -> None:
    """Over the same sample of a collection that is larger than it, small spreads included."""
    index = vector_index(tmp_path, 3000)
    spread = displacement_spread(index)
    reference = Reference(index)
    rng = np.random.default_rng(2)
    for size in (1.0, 1e-3):
        direction = rng.standard_normal((2, index.manifest.k)) * size
        flat = direction.ravel()
        unit = index.manifest.calibration.lam / max(np.sqrt(flat @ spread @ flat), 0.5)
        assert unit == pytest.approx(reference.displacement_unit(direction), rel=1e-3)


def _scores(anywhere: faiss.Index, query: np.ndarray) -> np.ndarray:
    scores, rows = anywhere.search(query[None].astype(np.float32), anywhere.ntotal)
    return scores[0][np.argsort(rows[0])]


def test_parquet_holds_the_same_vectors_beside_the_facts(index: Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "npy", ExportFormat.NPY)
    export_index(index, tmp_path / "parquet", ExportFormat.PARQUET)
    table = pq.read_table(tmp_path / "parquet" / "vectors.parquet")
    vectors = np.stack(table["vector"].to_numpy())
    assert np.array_equal(vectors, np.load(tmp_path / "npy" / "vectors.npy"))
    assert table["path"].to_pylist() == index.images["path"].to_pylist()
    assert vectors.shape == (80, index.manifest.encoder.dim + 2 * index.manifest.k)
    assert np.array_equal(np.load(tmp_path / "parquet" / "basis.npy"), index.sketcher.components)


def test_a_new_picture_gets_the_vector_it_would_have(index: Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "out", ExportFormat.NPY)
    encoder = TinyEncoder()
    with Image.open(Path(index.manifest.image_root) / index.images["path"][7].as_py()) as picture:
        vector = joint_vector(index, encoder, encoder.prepare(picture.convert("RGB")))
    np.testing.assert_array_equal(vector, np.load(tmp_path / "out" / "vectors.npy")[7])


def test_an_export_replaces_an_export_and_nothing_else(index: Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "out", ExportFormat.NPY)
    export_index(index, tmp_path / "out", ExportFormat.NPY)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ExportRefused, match=r"holds something else: came thesis\.txt"):
        export_index(index, tmp_path / "mine", ExportFormat.NPY)
    (tmp_path / "mine" / "thesis.txt").unlink()
    for content in ("{}", "[]", "no json"):
        (tmp_path / "mine" / "export.json").write_text(content)
        with pytest.raises(ExportRefused, match=r"holds something else: came export\.json"):
            export_index(index, tmp_path / "mine", ExportFormat.NPY)
        assert (tmp_path / "mine" / "export.json").read_text() == content
