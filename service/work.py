"""Where requests do their work: threads, so that the event loop stays free to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from service.problems import Overloaded

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded number of threads with a bounded queue. Belongs to one event loop.

    Parameters
    ----------
    name : str
        Of the threads.
    threads : int
    queue : int
        Calls that may wait for a thread.
    """

    def __init__(self, name: str, *, threads: int, queue: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads, self._limit = threads, threads + queue
        self._taken = 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something in a thread.

        Raises
        ------
        Overloaded
            The queue is full.
        """
        if self._taken >= self._limit:
            raise Overloaded(self._taken - self._threads)
        self._taken += 1
        future = self._pool.submit(call, *args, **kwargs)
        # Counted until the thread is done, not until the client gave up: that is what keeps the queue
        # bounded.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Stop taking work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _release(self) -> None:
        self._taken -= 1
