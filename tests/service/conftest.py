from __future__ import annotations

from pathlib import Path

import pytest

from indexer.store import open_index
from service.search import Searcher
from tests.support import Placed, SmallParser, TinyEncoder, index_folder, paint_gallery


@pytest.fixture(scope="session")
def gallery(tmp_path_factory) -> tuple[Path, list[tuple[Placed, Placed]]]:
    folder = tmp_path_factory.mktemp("gallery")
    return folder, paint_gallery(folder, 60)


@pytest.fixture(scope="session")
def index_path(gallery, tmp_path_factory) -> Path:
    return index_folder(gallery[0], tmp_path_factory.mktemp("index")).folder


@pytest.fixture(scope="session")
def searcher(index_path) -> Searcher:
    return Searcher(open_index(index_path), TinyEncoder(), SmallParser())
