"""What the README promises a newcomer holds: its files exist, its commands parse, its figures are recorded ones."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["README.md", "CONTRIBUTING.md", "indexer/compact.md", "benchmarks/README.md"]


def commands() -> list[str]:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", text):
        path = target[0] or target[1]
        if not path.startswith("http"):
            assert ((ROOT / name).parent / path).exists(), path


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for command in commands():
        words = shlex.split(command)
        if words[0] == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, command


def test_beside_commands_exist() -> None:
    from service.cli import app  # noqa: PLC0415

    names = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    for command in commands():
        words = shlex.split(command)
        if "beside" in words[0]:
            assert words[1].startswith("-") or words[1] in names, command


def test_benchmarks_exist() -> None:
    for command in commands():
        for module in re.findall(r"python -m (benchmarks\.\w+)", command):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), command


@pytest.mark.parametrize("name", ["README.md", "indexer/compact.md", "benchmarks/README.md"])
def test_figures_are_those_of_the_result_files(name: str) -> None:
    """``<!-- spatial.lr_moment -->.761`` quotes a metric of the one recorded result of that benchmark."""
    text = (ROOT / name).read_text()
    quoted = re.findall(r"<!-- (\w+)\.(\w+) -->([\d.]*\d)", text)
    assert quoted
    for benchmark, metric, figure in quoted:
        (path,) = (ROOT / "benchmarks" / "results").glob(f"{benchmark}-{'[0-9a-f]' * 12}.json")
        values = {m["name"]: m["value"] for m in json.loads(path.read_text())["metrics"]}
        digits = len(figure.partition(".")[2])
        assert f"{values[metric]:.{digits}f}".lstrip("0") == figure.lstrip("0"), (benchmark, metric)
