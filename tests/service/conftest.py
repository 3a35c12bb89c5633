from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from indexer.store import open_index
from parser import QueryParser
from service.app import create_app
from service.search import Searcher
from service.server import HEADER_LIMIT, address, bind
from service.settings import Settings
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


class Running:
    """The real application behind a real socket, in a thread."""

    def __init__(self, settings: Settings, open_searcher: Callable[[], Searcher]) -> None:
        self.app = create_app(settings, open_searcher=open_searcher)
        self._listener = bind("127.0.0.1", 0)
        self.url = address(self._listener)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app, log_level="critical", http="h11", h11_max_incomplete_event_size=HEADER_LIMIT
            )
        )
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def __enter__(self) -> Running:
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()

    def wait(self) -> Running:
        """Wait until searches are answered."""
        for _ in range(500):
            if self.client.get("/readyz").status_code == 200:
                return self
            time.sleep(0.02)
        raise AssertionError(self.client.get("/readyz").text)


@pytest.fixture(scope="session")
def server(index_path) -> Iterator[Running]:
    settings = Settings(index=index_path, queue=64)
    with Running(settings, lambda: Searcher(open_index(index_path), TinyEncoder(), QueryParser())) as running:
        yield running.wait()


@pytest.fixture(scope="session")
def client(server) -> httpx.Client:
    return server.client
