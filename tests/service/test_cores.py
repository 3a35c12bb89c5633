from __future__ import annotations

import threading
import time

import pytest

from service.cores import CORES, each, split


def test_results_come_in_the_order_of_the_jobs():
    def slowly(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number

    assert each(slowly, [(n,) for n in range(50)]) == list(range(50))
    assert each(slowly, []) == []


@pytest.mark.skipif(CORES < 2, reason="one core")
def test_several_cores_work_at_once():
    together = threading.Barrier(2, timeout=10)
    each(together.wait, [(), ()])


def test_what_a_job_raises_is_raised_after_all_have_stopped():
    running = []

    def work(number: int) -> None:
        running.append(number)
        time.sleep(0.01)
        running.remove(number)
        if number == 1:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        each(work, [(n,) for n in range(4)])
    assert not running


def test_a_job_may_ask_for_all_cores_itself():
    def outer(number: int) -> int:
        return sum(each(lambda n: n * number, [(n,) for n in range(8)]))

    assert each(outer, [(n,) for n in range(3 * CORES)]) == [28 * n for n in range(3 * CORES)]


def test_many_threads_may_ask_at_once():
    found: list[int] = []

    def ask() -> None:
        found.append(sum(each(lambda n: n, [(n,) for n in range(20)])))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [190] * 8


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_parts_cover_all_rows_once(count):
    parts = split(count)
    assert [n for first, last in parts for n in range(first, last)] == list(range(count))
    assert len(parts) <= CORES
