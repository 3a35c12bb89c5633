"""Decoding beside the encoder, in processes that may hang or die without harm.

A thread waits for each process: it hands a file over, keeps the time, and starts a new process where the old one
had to be killed or died. A process that died is given the file once more, because the system may have ended it for
another file's sake; the second time the file is to blame.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from indexer.decode import Decoded, DecodeJob, DecodeSetup, decode, read_message, write_message
from indexer.errors import IndexerError, UnreadableReason

_START_SECONDS = 60.0
_PIPE_BYTES = 1 << 20
_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from indexer.decode import serve; serve()"

Item = TypeVar("Item")


class DecoderUnavailable(IndexerError):
    """Decoding processes cannot be started at all."""


class DecodePool:
    """Decodes files in processes of its own. A context manager; leaving it ends the processes at once.

    Parameters
    ----------
    setup : DecodeSetup
    workers : int
        Processes. 0 decodes in a thread of this process, where nothing can be killed: for a handful of files.
    """

    def __init__(self, setup: DecodeSetup, workers: int) -> None:
        self._setup = setup
        self._processes = [_Process(setup) for _ in range(workers)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self.workers = max(1, workers)
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")

    def submit(self, job: DecodeJob) -> Future[Decoded]:
        """Queue a file.

        Returns
        -------
        Future of Decoded
            Raises :class:`DecoderUnavailable` where no process can be started.
        """
        return self._threads.submit(self._decode, job)

    def in_order(
        self, jobs: Iterable[tuple[Item, DecodeJob | None]], *, ahead: int
    ) -> Generator[tuple[Item, Decoded | None], None, None]:
        """Decode ahead, but hand out in order.

        Parameters
        ----------
        jobs : iterable of (item, job)
            No job for an item that needs no decoding.
        ahead : int
            Pictures decoded before they are asked for, and so held in memory.

        Yields
        ------
        item, decoded
        """
        waiting: deque[tuple[Item, Future[Decoded] | None]] = deque()
        try:
            for item, job in jobs:
                waiting.append((item, None if job is None else self.submit(job)))
                if len(waiting) > ahead:
                    yield _taken(waiting)
            while waiting:
                yield _taken(waiting)
        finally:
            for _, future in waiting:
                if future is not None:
                    future.cancel()

    def __enter__(self) -> DecodePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.close()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.end()

    def _decode(self, job: DecodeJob) -> Decoded:
        if not self._processes:
            return decode(job, self._setup)
        process = self._idle.get()
        try:
            return process.decode(job)
        finally:
            self._idle.put(process)


def _taken(
    waiting: deque[tuple[Item, Future[Decoded] | None]],
) -> tuple[Item, Decoded | None]:
    item, future = waiting.popleft()
    return item, None if future is None else future.result()


class _Process:
    """One decoding process at a time, started when first needed and again after each loss."""

    def __init__(self, setup: DecodeSetup) -> None:
        self._setup = setup
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def decode(self, job: DecodeJob) -> Decoded:
        how = ""
        for _ in range(2):
            running = self._started()
            try:
                decoded: Decoded = self._ask(running, job)
                return decoded
            except TimeoutError:
                self.end()
                detail = f"no picture after {self._setup.seconds:g} seconds"
                return Decoded(reason=UnreadableReason.TIMED_OUT, detail=detail)
            except (EOFError, OSError):
                how = _how_it_died(self.end())
        return Decoded(
            reason=UnreadableReason.DECODER_DIED, detail=f"the decoding process died of it twice ({how})"
        )

    def close(self) -> None:
        """End the process; a thread that waits for it is cancelled."""
        with self._lock:
            self._closed = True
            if self._running is not None:
                self._running.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise CancelledError
            if self._running is not None:
                return self._running
            self._running = running = subprocess.Popen(
                [sys.executable, "-c", _MAIN, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is the build's to act on
            )
        assert running.stdout is not None
        with contextlib.suppress(
            ImportError, AttributeError, OSError
        ):  # larger pipes, where the system has them
            import fcntl  # noqa: PLC0415

            fcntl.fcntl(running.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            problem = self._ask(running, self._setup, seconds=_START_SECONDS)
        except (TimeoutError, EOFError, OSError) as error:
            problem = str(error) or _how_it_died(self.end())
        if self._closed:
            raise CancelledError
        if problem is not None:
            self.end()
            raise DecoderUnavailable("a decoding process does not start", came=problem)
        return running

    def _ask(self, running: subprocess.Popen[bytes], message: object, *, seconds: float | None = None) -> Any:
        """Hand a message over and wait for the answer, as long as a file may take."""
        assert running.stdin is not None
        assert running.stdout is not None
        descriptor = running.stdout.fileno()
        deadline = time.monotonic() + (seconds or self._setup.seconds)
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)

        def fill(buffer: memoryview) -> None:
            while buffer:
                if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError
                count = os.readv(descriptor, [buffer])
                if not count:
                    raise EOFError
                buffer = buffer[count:]

        write_message(running.stdin, message)
        return read_message(fill)

    def end(self) -> int:
        """Kill the process, for it may hang, and forget it."""
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            return 0
        running.kill()
        with contextlib.suppress(OSError):  # what is still buffered for a process that is gone
            running.communicate()
        return running.returncode


def _how_it_died(status: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"exit status {status}"
