"""Builds that are killed or run out of room, against an undisturbed one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from indexer.build import BuildRefused, build_index
from indexer.errors import IndexerError
from indexer.manifest import read_manifest
from indexer.store import WriteFailed, open_index
from tests.indexer.test_build import Counting, gallery, paint
from tests.support import TinyEncoder

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20

# Forks a builder a line, so that twenty deaths cost twenty builds and not twenty starts of Python. A builder counts
# what it makes durable, and may be told to die right before or right after the n-th time.
BUILDER = """
import indexer.workspace, json, os, signal, sys
from pathlib import Path
from indexer.build import build_index
from tests.support import TinyEncoder

indexer.workspace.SAMPLE_IMAGES, indexer.workspace.SHARD_IMAGES = 16, 8

def build(images, out, die_at, workers):
    count = 0
    def counted(real):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == die_at: os.kill(os.getpid(), signal.SIGKILL)
            done = real(*arguments, **options)
            count += 1
            if count == die_at: os.kill(os.getpid(), signal.SIGKILL)
            return done
        return call
    os.fsync, Path.replace, Path.unlink = map(counted, (os.fsync, Path.replace, Path.unlink))
    summary = build_index(Path(images), Path(out), TinyEncoder(), batch=4, workers=workers)
    return {"encoded": summary.encoded, "steps": count}

for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(build(**json.loads(line))).encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    print(answer or '{"killed": true}', flush=True)
"""


@contextlib.contextmanager
def builder() -> Iterator[object]:
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:

        def build(images: Path, out: Path, die_at: int = 0, workers: int = 0) -> dict:
            job = {"images": str(images), "out": str(out), "die_at": die_at, "workers": workers}
            running.stdin.write(json.dumps(job) + "\n")
            running.stdin.flush()
            return json.loads(running.stdout.readline())

        yield build
        running.stdin.close()


def files(out: Path) -> dict[str, bytes]:
    """Everything but when it was made, and the checksum over that."""
    found = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    manifest = json.loads(found.pop("manifest.json"))
    manifest.pop("created"), manifest.pop("sha256")
    return found | {"manifest.json": json.dumps(manifest).encode()}


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_twenty_kills_end_in_the_undisturbed_index(tmp_path: Path, workers: int) -> None:
    """SIGKILL at random steps of what is made durable, in every phase; the same folder goes on each time."""
    images = gallery(tmp_path / "in", 60)
    rng = random.Random(6 + workers)
    with builder() as build:
        calm = build(images, tmp_path / "calm", workers=workers)
        steps = calm["steps"]
        kills, fresh = 0, 0
        while kills < KILLS:
            out = tmp_path / f"out{fresh}"
            fresh += 1
            # Early steps only at first, so that one folder survives several deaths; then anywhere, to the last rename.
            for reach in (10, 16, steps, steps, steps):
                died = build(images, out, die_at=rng.randint(1, reach), workers=workers)
                kills += "killed" in died
                if "killed" not in died:
                    break
            build(images, out, workers=workers)
            assert files(out) == files(tmp_path / "calm")
        assert fresh > 1
    index = open_index(tmp_path / "calm")
    assert len(set(index.images["id"].to_pylist())) == calm["encoded"] == 60


def test_every_step_of_an_update_may_be_the_last(tmp_path: Path) -> None:
    """A killed update leaves the old index to its readers, or the new one: nothing between."""
    images = gallery(tmp_path / "in", 20)
    with builder() as build:
        build(images, tmp_path / "before")
        old = files(tmp_path / "before")
        gallery(images, 3, start=100)
        (images / "0" / "0.png").unlink()
        # Dying after a step and dying before the next are much alike, so every second one will do.
        step, died, first = -1, True, None
        while died:
            step += 2
            out = tmp_path / f"out{step}"
            for name, content in old.items():
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_bytes(content)
            manifest = json.loads((tmp_path / "before" / "manifest.json").read_text())
            (out / "manifest.json").write_text(json.dumps(manifest))
            died = "killed" in build(images, out, die_at=step)
            assert len(open_index(out)) in (20, 22)
            build(images, out)
            assert len(open_index(out)) == 22
            first = first or files(out)
            assert files(out) == first
            assert not list(out.rglob("*.part"))
            assert len([p for p in out.iterdir() if p.name.startswith("native-")]) == 1
        assert step > 15


# No room --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB, where this process may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_one_clear_line_and_the_old_index_stands(small_disk: Path, tmp_path: Path) -> None:
    images = gallery(tmp_path / "in", 60)
    out = small_disk / "index"
    build_index(images, out, TinyEncoder(), workers=0)
    before = files(out)
    filler = small_disk / "filler"
    for room in (0, 4, 16, 24):
        gallery(images, 40, start=100)
        filler.write_bytes(b"")
        stat = os.statvfs(small_disk)
        filler.write_bytes(bytes(max(0, stat.f_bavail * stat.f_frsize - room * 1024)))
        with pytest.raises(IndexerError) as caught:
            build_index(images, out, TinyEncoder(), workers=0)
        if room:
            assert isinstance(caught.value, WriteFailed)
            assert "No space left on device. The index is as it was before. Make room" in str(caught.value)
        assert "\n" not in str(caught.value)
        found = {name: content for name, content in files(out).items() if not name.startswith("build/")}
        assert found == before
        assert len(open_index(out)) == 60
    filler.unlink()
    assert build_index(images, out, TinyEncoder(), workers=0).indexed == 100


def test_a_disk_that_turns_read_only_is_one_clear_line(small_disk: Path, tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 10), small_disk / "index"
    build_index(images, out, TinyEncoder(), workers=0)
    before = files(out)
    gallery(images, 3, start=100)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(
        BuildRefused, match=r"cannot be written to: came Read-only file system\. Choose a folder"
    ):
        build_index(images, out, TinyEncoder(), workers=0)
    assert files(out) == before


@pytest.mark.parametrize(
    "name", [".lock", "build", "shard-000000.safetensors.part", "native.faiss.part", "manifest.json.part"]
)
def test_a_write_that_is_not_allowed_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The system's answer is feigned: where the tests run as root, it forbids nothing."""
    images, out = gallery(tmp_path / "in", 10), tmp_path / "out"

    def forbid(owner: object, function: str) -> None:
        real = getattr(owner, function)

        def call(*arguments: object, **options: object) -> object:
            if str(arguments[0]).endswith(f"/{name}"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(arguments[0]))
            return real(*arguments, **options)

        monkeypatch.setattr(owner, function, call)

    forbid(os, "open")
    forbid(Path, "mkdir")
    forbid(Path, "open")
    with pytest.raises(IndexerError, match=r"Permission denied\. .*this user may write") as caught:
        build_index(images, out, TinyEncoder(), workers=0)
    assert isinstance(caught.value, BuildRefused if name == ".lock" else WriteFailed)
    monkeypatch.undo()
    assert build_index(images, out, TinyEncoder(), workers=0).indexed == 10


LIMITED = """
import resource, sys
from pathlib import Path
from indexer.build import build_index
from indexer.store import WriteFailed
from tests.support import TinyEncoder
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    build_index(Path(sys.argv[1]), Path(sys.argv[2]), TinyEncoder(), workers=0)
except WriteFailed as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [100, 5_000, 11_000])
def test_a_file_that_cannot_grow_is_no_half_file(tmp_path: Path, limit: int) -> None:
    """Needs no rights: the system refuses to let a file grow, at whichever file it is."""
    images, out = gallery(tmp_path / "in", 30), tmp_path / "out"
    build_index(images, out, TinyEncoder(), workers=0)
    before = files(out)
    gallery(images, 70, start=100)
    run = [sys.executable, "-c", LIMITED, images, out, str(limit)]
    said = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "cannot be written: came File too large. The index is as it was before." in said
    assert {n: c for n, c in files(out).items() if not n.startswith("build/")} == before
    assert not list(out.rglob("*.part"))
    assert build_index(images, out, TinyEncoder(), workers=0).indexed == 100


# Readers --------------------------------------------------------------------------------------------------


def test_readers_see_one_generation_or_the_next(tmp_path: Path) -> None:
    """A reader reopens without pause while the index is rebuilt: never an error, never a mixture."""
    images, out = gallery(tmp_path / "in", 12), tmp_path / "out"
    build_index(images, out, TinyEncoder(), workers=0)
    stop, problems = threading.Event(), []
    seen: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            try:
                index = open_index(out)
                native, codes = np.array(index.native()), index.sketch()
                assert len(native) == len(codes) == index.images.num_rows == index.manifest.indexed
                np.testing.assert_allclose(np.linalg.norm(native, axis=1), 1, atol=1e-5)
                seen.add(len(index))
            except Exception as error:
                problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(15):
        paint(images / "more" / f"{n}.png", 500 + n)
        build_index(images, out, TinyEncoder(), workers=0)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert len(seen) > 5
    assert read_manifest(out).indexed == 27


def test_a_lock_of_a_dead_build_holds_nobody(tmp_path: Path) -> None:
    images, out = gallery(tmp_path / "in", 30), tmp_path / "out"
    with builder() as build:
        assert build(images, out, die_at=3) == {"killed": True}
    assert (out / ".lock").exists()
    encoder = Counting()
    assert build_index(images, out, encoder, workers=0).indexed == 30
