"""The same build on Ray: loopback only, one local cluster for all tests."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexer.build import build_index
from indexer.ray_build import LOCAL, RayEncoding, RayUnavailable, connected
from indexer.store import open_index
from tests.indexer.test_build import Counting, gallery, same
from tests.support import TinyEncoder

pytestmark = pytest.mark.slow


class Slow(TinyEncoder):
    """Leaves time to be killed."""

    def encode_images(self, batch):
        time.sleep(0.1)
        return super().encode_images(batch)


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    pytest.importorskip("ray")
    with connected(LOCAL) as ray:
        yield ray


def on_ray(**options: object) -> RayEncoding:
    return RayEncoding(options.pop("load", TinyEncoder), address=LOCAL, **options)


def test_the_index_is_the_local_one(ray: object, tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 70)
    (images / "empty.jpg").touch()
    (images / "text.jpg").write_text("no picture")
    (images / "nowhere.jpg").symlink_to("none")
    build_index(images, tmp_path / "here", TinyEncoder(), workers=0, batch=8)
    summary = build_index(images, tmp_path / "there", TinyEncoder(), batch=8, encoding=on_ray(actors=2))
    assert (summary.indexed, summary.encoded) == (70, 70)
    here, there = open_index(tmp_path / "here"), open_index(tmp_path / "there")
    assert same(here, there)
    assert here.manifest.files == there.manifest.files
    gallery(images, 5, start=100)
    encoder = Counting()
    again = build_index(images, tmp_path / "there", encoder, encoding=on_ray())
    assert (again.encoded, again.reused, encoder.pictures) == (5, 70, 0)


def test_a_killed_worker_loses_nothing(ray: object, tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 120)
    build_index(images, tmp_path / "calm", TinyEncoder(), workers=0, batch=4)
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and len(killed) < 2:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if b"_Actor" in path.read_bytes() or b"MapWorker" in path.read_bytes():
                        pid = int(path.parent.name)
                        if pid not in killed and _is_ours(pid):
                            time.sleep(0.4)
                            os.kill(pid, signal.SIGKILL)
                            killed.append(pid)
                            break
            time.sleep(0.1)

    killer = threading.Thread(target=kill)
    killer.start()
    summary = build_index(
        images, tmp_path / "out", TinyEncoder(), batch=4, encoding=on_ray(load=Slow, actors=2)
    )
    killer.join()
    assert killed
    assert summary.encoded == 120
    assert same(open_index(tmp_path / "calm"), open_index(tmp_path / "out"))


def _is_ours(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False


def test_no_cluster_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(RayUnavailable, match="no Ray cluster at 'auto'") as caught:
        build_index(
            gallery(tmp_path / "in", 2), tmp_path / "out", TinyEncoder(), encoding=RayEncoding(TinyEncoder)
        )
    assert "\n" not in str(caught.value)
