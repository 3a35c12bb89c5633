"""Where requests do their work: threads, so that the event loop stays free to answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from service.problems import Overloaded

P = ParamSpec("P")
T = TypeVar("T")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

TOGETHER = 64
"""Requests that are answered together at most: so many make the best use of one scan."""


class _Threads:
    """Threads that work until they are told to stop."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    def close(self) -> None:
        """Stop taking work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Workers(_Threads):
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
        super().__init__(name, threads)
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

    def _release(self) -> None:
        self._taken -= 1


class Together(_Threads, Generic[Asked, Answer]):
    """Answers in one call what waits at the same time. Belongs to one event loop.

    Nobody waits for company: a free thread takes at once whatever there is. What comes while all are busy waits for the
    first to be free, at most one call long, and goes together then.

    Parameters
    ----------
    name : str
        Of the threads.
    threads : int
    queue : int
        Requests that may wait for a thread.
    """

    def __init__(self, name: str, *, threads: int, queue: int) -> None:
        super().__init__(name, threads)
        self._free, self._queue = threads, queue
        self._waiting: deque[_Waiting[Asked, Answer]] = deque()

    async def ask(self, answer: Callable[[Sequence[Asked]], Sequence[Answer]], asked: Asked) -> Answer:
        """Have something answered.

        Parameters
        ----------
        answer : callable
            Answers several, in their order; each must get what it would get alone. Where it raises, they are asked
            again one by one, so that the others do not suffer for one.
        asked : object

        Raises
        ------
        Overloaded
            The queue is full.
        """
        if not self._free and len(self._waiting) >= self._queue:
            raise Overloaded(len(self._waiting))
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, asked, future))
        self._begin()
        return await future

    def _begin(self) -> None:
        while self._free and self._waiting:
            answer = self._waiting[0][0]
            some: list[_Waiting[Asked, Answer]] = []
            while self._waiting and len(some) < TOGETHER and self._waiting[0][0] == answer:
                one = self._waiting.popleft()
                if not one[2].done():  # whose client has given up is not answered
                    some.append(one)
            if some:
                self._free -= 1
                work = self._pool.submit(_answer_all, answer, [asked for _, asked, _ in some])
                asyncio.wrap_future(work).add_done_callback(partial(self._end, some))

    def _end(
        self,
        some: Sequence[_Waiting[Asked, Answer]],
        work: asyncio.Future[Sequence[Answer | BaseException]],
    ) -> None:
        self._free += 1
        for (_, _, future), one in zip(some, work.result(), strict=True):
            if future.done():
                continue
            if isinstance(one, BaseException):
                future.set_exception(one)
            else:
                future.set_result(one)
        self._begin()


_Waiting = tuple[Callable[[Sequence[Asked]], Sequence[Answer]], Asked, "asyncio.Future[Answer]"]


def _answer_all(
    answer: Callable[[Sequence[Asked]], Sequence[Answer]], asked: Sequence[Asked]
) -> Sequence[Answer | BaseException]:
    try:
        return answer(asked)
    except Exception as error:
        if len(asked) == 1:
            return [error]
        return [one for each in asked for one in _answer_all(answer, [each])]
