"""The parser's benchmark, where its data is not there."""

from pathlib import Path

import pytest

from benchmarks.parser import main


def test_missing_data_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no .*queries\.jsonl: --data names a folder"):
        main(["--data", str(tmp_path / "data")])
