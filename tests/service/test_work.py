from __future__ import annotations

import asyncio
import threading
import time

import pytest

from service.problems import Overloaded
from service.work import TOGETHER, Together


class Slow:
    """Answers with what was asked and how many were asked with it, once it is let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = threading.Event()

    def __call__(self, asked):
        self.go.wait(5)
        self.sizes.append(len(asked))
        if "broken" in asked:
            raise ValueError("broken")
        return [(one, len(asked)) for one in asked]


def run(main):
    return asyncio.run(main())


def test_what_waits_at_the_same_time_goes_together():
    async def main():
        slow, work = Slow(), Together("t", threads=1, queue=200)
        tasks = [asyncio.create_task(work.ask(slow, n)) for n in range(TOGETHER + 11)]
        await asyncio.sleep(0.05)
        slow.go.set()
        answers = await asyncio.gather(*tasks)
        work.close()
        assert [one for one, _ in answers] == list(range(TOGETHER + 11))
        assert slow.sizes == [1, TOGETHER, 10]

    run(main)


def test_nobody_waits_for_company():
    async def main():
        slow, work = Slow(), Together("t", threads=1, queue=9)
        slow.go.set()
        begin = time.perf_counter()
        assert await work.ask(slow, "a") == ("a", 1)
        assert time.perf_counter() - begin < 0.5
        work.close()

    run(main)


def test_the_others_do_not_suffer_for_one():
    async def main():
        slow, work = Slow(), Together("t", threads=1, queue=9)
        tasks = [asyncio.create_task(work.ask(slow, one)) for one in ("first", "good", "broken", "fine")]
        await asyncio.sleep(0.05)
        slow.go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        work.close()
        assert answers[0] == ("first", 1)
        assert answers[1] == ("good", 1)
        assert isinstance(answers[2], ValueError)
        assert answers[3] == ("fine", 1)

    run(main)


def test_the_queue_is_bounded_and_who_gives_up_leaves_it():
    async def main():
        slow, work = Slow(), Together("t", threads=1, queue=2)
        tasks = [asyncio.create_task(work.ask(slow, n)) for n in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await work.ask(slow, 3)
        tasks[1].cancel()
        await asyncio.sleep(0)
        slow.go.set()
        assert await tasks[0] == (0, 1)
        assert await tasks[2] == (2, 1)
        assert await work.ask(slow, 4) == (4, 1)
        work.close()

    run(main)


def test_two_kinds_of_answer_are_not_mixed():
    async def main():
        one, other, work = Slow(), Slow(), Together("t", threads=1, queue=9)
        tasks = [asyncio.create_task(work.ask(each, n)) for n, each in enumerate((one, one, other, other))]
        await asyncio.sleep(0.05)
        one.go.set()
        other.go.set()
        await asyncio.gather(*tasks)
        work.close()
        assert (one.sizes, other.sizes) == ([1, 1], [2])

    run(main)
