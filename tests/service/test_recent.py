from __future__ import annotations

from service.cores import CORES, each, split
from service.recent import Recent


def test_what_was_not_used_for_longest_goes_first():
    kept: Recent[str, int] = Recent()
    for value, key in enumerate("abc"):
        kept.put(key, value, most=3)
    assert kept.get("a") == 0
    kept.put("d", 3, most=3)
    assert [kept.get(key) for key in "abcd"] == [0, None, 2, 3]
    kept.put("a", 9, most=1)
    assert len(kept) == 1
    assert kept.get("a") == 9


def test_parts_cover_all_rows_once():
    for count in (0, 1, 2, 7, 1000):
        parts = split(count)
        assert [row for start, end in parts for row in range(start, end)] == list(range(count))
        assert len(parts) == min(count, CORES)
    assert each(pow, [(2, 3), (3, 2), (5, 1)]) == [8, 9, 5]
    assert each(pow, [(2, 3)]) == [8]
    assert each(pow, []) == []
