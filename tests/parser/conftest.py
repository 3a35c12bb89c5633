from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from parser import ParsedQuery, QueryParser

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BESIDE_DATA", ROOT.parent / "shared" / "data"))
SENTENCES = Path(__file__).with_name("sentences.jsonl")

Facts = list[tuple[str, ...]]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def facts(parsed: ParsedQuery) -> Facts:
    return [tuple(fact.values()) for fact in parsed.to_dict()["relations"]]


@pytest.fixture(scope="session", params=[False, True], ids=["words alone", "with spaCy"])
def parser(request: pytest.FixtureRequest) -> QueryParser:
    if request.param and find_spec("spacy") is None and "CI" not in os.environ:
        pytest.skip("spaCy is not installed")
    return QueryParser(use_spacy=request.param)


@pytest.fixture(scope="session")
def table() -> Callable[[str], list[dict[str, Any]]]:
    def read(name: str) -> list[dict[str, Any]]:
        path = DATA / name
        if not path.exists() and "CI" not in os.environ:
            pytest.skip(f"{path} is missing; set BESIDE_DATA to the data folder")
        return rows(path)

    return read
