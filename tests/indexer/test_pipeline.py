from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from indexer.build import build_index
from indexer.decode import Decoded, DecodeJob, DecodeSetup, decode, read_message, write_message
from indexer.encoder import Pixels
from indexer.errors import UnreadableReason
from indexer.pipeline import DecodePool, DecoderUnavailable
from indexer.prepare import OpenClipPreparer
from indexer.store import open_index
from tests.corpus import heic_stub
from tests.support import TinyEncoder, TinyPreparer

ROOT = Path(__file__).resolve().parents[2]
HANG, CRASH, CRASH_ONCE = 7, 9, 11


class Trap(TinyPreparer):
    """Decoders go wrong on pictures of some widths."""

    def __init__(self, folder: Path) -> None:
        self.once = folder / "once"

    def __call__(self, image: Image.Image) -> Pixels:
        if image.width == HANG:
            time.sleep(60)
        if image.width == CRASH or (image.width == CRASH_ONCE and not self.once.exists()):
            self.once.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__call__(image)


class TrapEncoder(TinyEncoder):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    @property
    def preparer(self) -> Trap:
        return Trap(self.folder)


class Refusing(TinyPreparer):
    def __call__(self, image: Image.Image) -> Pixels:
        return super().__call__(image.resize((2**31, 1)))


class FromNowhere(TinyPreparer):
    def __reduce__(self) -> tuple[object, ...]:
        return __import__, ("no_such_module",)


def draw(path: Path, width: int, height: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(width * height)
    Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return path


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def gone(pid: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_process_gives_what_a_thread_gives(tmp_path: Path) -> None:
    paths = [draw(tmp_path / f"{n}.png", 20 + n) for n in range(12)]
    (tmp_path / "bad.png").write_text("no picture")
    jobs = [(n, DecodeJob(path)) for n, path in enumerate([*paths, tmp_path / "bad.png"])]
    setup = DecodeSetup(TinyPreparer(), None, 30)
    with DecodePool(setup, 2) as pool:
        theirs = list(pool.in_order([*jobs, (99, None)], ahead=3))
    assert [item for item, _ in theirs] == [*range(13), 99]
    for (_, job), (_, there) in zip(jobs, theirs, strict=False):
        here = decode(job, setup)
        assert there is not None
        assert (here.content_hash, here.width, here.reason) == (there.content_hash, there.width, there.reason)
        if here.pixels:
            assert there.pixels
            assert np.array_equal(here.pixels.native, there.pixels.native)
    assert theirs[12][1].reason is UnreadableReason.NOT_AN_IMAGE
    assert theirs[13][1] is None


@pytest.mark.parametrize("workers", [0, 2])
def test_no_more_is_decoded_ahead_than_allowed(tmp_path: Path, workers: int) -> None:
    path = draw(tmp_path / "a.png", 30)
    asked = 0

    def jobs() -> object:
        nonlocal asked
        for n in range(100):
            asked += 1
            yield n, DecodeJob(path)

    with DecodePool(DecodeSetup(TinyPreparer(), None, 30), workers) as pool:
        for n, _ in pool.in_order(jobs(), ahead=5):
            assert asked <= n + 6


def test_only_the_file_at_fault_is_blamed(tmp_path: Path) -> None:
    images = tmp_path / "in"
    for n in range(20):
        draw(images / f"{n}.png", 20 + n)
    draw(images / "hangs.png", HANG)
    draw(images / "crashes.png", CRASH)
    draw(images / "unlucky.png", CRASH_ONCE)
    started = time.monotonic()
    summary = build_index(images, tmp_path / "out", TrapEncoder(tmp_path), workers=2, file_seconds=1.5)
    assert time.monotonic() - started < 20
    assert summary.unreadable == {"timed_out": ("hangs.png",), "decoder_died": ("crashes.png",)}
    assert summary.indexed == 21
    rows = {row["path"]: row for row in open_index(tmp_path / "out").ledger.to_pylist()}
    assert rows["hangs.png"]["detail"] == "no picture after 1.5 seconds"
    assert "SIGSEGV" in rows["crashes.png"]["detail"]
    assert not descendants(os.getpid())


def test_a_stopped_process_is_killed_too(tmp_path: Path) -> None:
    """SIGSTOP stands for a process that cannot even keep the time itself."""
    path = draw(tmp_path / "a.png", 30)
    with DecodePool(DecodeSetup(TinyPreparer(), None, 1.0), 1) as pool:
        assert pool.submit(DecodeJob(path)).result().pixels is not None
        (pid,) = descendants(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        assert pool.submit(DecodeJob(path)).result().reason is UnreadableReason.TIMED_OUT
        assert pool.submit(DecodeJob(path)).result().pixels is not None


def test_an_encoder_that_processes_cannot_have_is_one_clear_error(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 30)
    with (
        DecodePool(DecodeSetup(FromNowhere(), None, 5), 1) as pool,
        pytest.raises(DecoderUnavailable, match=r"does not start: came ModuleNotFoundError.*no_such_module"),
    ):
        pool.submit(DecodeJob(path)).result()


def test_leaving_does_not_wait_for_a_hanging_decoder(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", HANG)
    with DecodePool(DecodeSetup(Trap(tmp_path), None, 60), 2) as pool:
        futures = [pool.submit(DecodeJob(path)) for _ in range(4)]
        time.sleep(0.7)
        started = time.monotonic()
    assert time.monotonic() - started < 1
    assert all(future.cancelled() or future.exception() for future in futures)


def test_a_message_keeps_arrays_and_may_come_in_crumbs(tmp_path: Path) -> None:
    sent = Decoded("hash", 3, pixels=Pixels(np.arange(12, dtype=np.float32).reshape(3, 2, 2), None))
    with (tmp_path / "pipe").open("wb") as file:
        write_message(file, sent)
    with (tmp_path / "pipe").open("rb") as file:

        def fill(buffer: memoryview) -> None:
            for at in range(len(buffer)):
                buffer[at : at + 1] = file.read(1)

        got = read_message(fill)
    assert np.array_equal(got.pixels.native, sent.pixels.native)
    assert (got.content_hash, got.bytes, got.pixels.dense) == ("hash", 3, None)


# A build in a process of its own --------------------------------------------------------------------------

SLOW_BUILD = """
import signal, sys, time
from pathlib import Path
from indexer.build import build_index
from indexer.errors import IndexerError
# Whoever runs the tests in the background of a shell hands down an interrupt that is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.support import TinyEncoder
class Slow(TinyEncoder):
    def encode_images(self, batch):
        time.sleep(0.1)
        return super().encode_images(batch)
try:
    build_index(Path(sys.argv[1]), Path(sys.argv[2]), Slow(), workers=2, batch=4,
                progress=lambda now: print(now.done, flush=True))
except IndexerError as error:
    print(type(error).__name__, error, flush=True)
"""


def start(images: Path, out: Path) -> tuple[subprocess.Popen[str], Queue[str]]:
    """A build that lives half a minute if nobody stops it; its lines come through a queue."""
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, images, out],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    lines: Queue[str] = Queue()
    Thread(target=lambda: [lines.put(line) for line in running.stdout], daemon=True).start()
    return running, lines


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    for n in range(300):
        draw(images / f"{n}.png", 20 + n % 50)
    running, lines = start(images, out)
    while int(lines.get(timeout=30)) < 40:
        pass
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the whole foreground group
    started = time.monotonic()
    assert running.wait(timeout=10) == 0
    assert time.monotonic() - started < 2
    time.sleep(0.1)
    last = [*lines.queue][-1]
    assert last.startswith("BuildInterrupted stopped after ")
    assert "of 300 files; what was encoded is kept" in last
    assert "Run the same command again to go on." in last
    done = int(last.split("after ")[1].split()[0])
    summary = build_index(images, out, TinyEncoder(), workers=0)
    assert summary.indexed == 300
    assert summary.encoded in (300 - done, 299 - done)  # stopped between keeping a picture and counting it


def test_processes_of_a_killed_build_end_by_themselves(tmp_path: Path) -> None:
    images = tmp_path / "in"
    for n in range(100):
        draw(images / f"{n}.png", 20 + n % 50)
    running, lines = start(images, tmp_path / "out")
    lines.get(timeout=30)
    decoders = descendants(running.pid)
    assert len(decoders) == 2
    running.kill()
    running.wait()
    assert all(gone(pid, within=5) for pid in decoders)


def test_a_decoding_process_weighs_little(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 30)
    script = "import indexer.decode, sys, json; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "faiss", "pyarrow", "open_clip"} & set(json.loads(ran.stdout))
    half = (0.5, 0.5, 0.5)
    preparer = OpenClipPreparer((224, 224), half, half, "squash", "bicubic", 0)
    with DecodePool(DecodeSetup(preparer, None, 30), 1) as pool:
        pool.submit(DecodeJob(path)).result()
        (pid,) = descendants(os.getpid())
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 80e6


def test_a_shape_that_cannot_be_scaled_is_an_unreadable_picture(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 8)
    decoded = decode(DecodeJob(path), DecodeSetup(Refusing(), None, 60.0))
    assert decoded.reason is UnreadableReason.BROKEN
    assert decoded.detail is not None
    assert decoded.detail.startswith("it cannot be scaled: ")
    assert decoded.pixels is None


def test_what_to_do_about_a_file_is_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    path = tmp_path / "a.heic"
    path.write_bytes(heic_stub())
    decoded = decode(DecodeJob(path), DecodeSetup(TinyPreparer(), None, 60.0))
    assert decoded.detail == "HEIC, whose decoder is not installed. Run: pip install 'beside[heif]'"
