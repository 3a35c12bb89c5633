"""No container engine runs here, so the files are read and held to rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from service.cli import run

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions by stage, with continued lines joined and comments left out."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: dict[str, list[tuple[str, str]]] = {}
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, rest = line.split(" ", 1)
        if word == "FROM":
            name = re.fullmatch(r"\S+ AS (\w+)", rest)
            assert name, f"a stage without a name: {line}"
            found[name[1]] = []
        found[list(found)[-1]].append((word, rest))
    return found


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image(target):
    all_stages = stages()
    words = [word for word, _ in all_stages[target]]
    values = {word: rest for word, rest in all_stages[target]}
    assert values["USER"] not in {"root", "0"}
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    assert "/readyz" in values["HEALTHCHECK"]
    assert values["ENTRYPOINT"] == '["beside"]'
    assert words[-1] == "CMD"
    copied = {
        name
        for word, rest in all_stages["base"] + all_stages[target]
        if word == "COPY"
        for name in rest.split()[:-1]
    }
    assert copied == {
        "constraints.txt",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "parser",
        "indexer",
        "service",
        "benchmarks",
    }
    allowed = {
        line[1:]
        for line in (ROOT / "docker/Dockerfile.dockerignore").read_text().splitlines()
        if line[:1] == "!"
    }
    assert copied == allowed


def test_the_default_is_cpu_and_both_are_one_but_for_torch():
    all_stages = stages()
    assert list(all_stages)[-1] == "cpu"
    different = [(a, b) for a, b in zip(all_stages["cpu"], all_stages["gpu"], strict=True) if a != b]
    assert different.pop(0)[0][0] == "FROM"
    assert len(different) == 1
    assert "torch" in different[0][0][1]
    assert all(
        ":latest" not in rest for stage in all_stages.values() for word, rest in stage if word == "FROM"
    )


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service(name):
    one = COMPOSE["services"][name]
    target = "gpu" if name.endswith("gpu") else "cpu"
    assert one["profiles"] == [target if name.startswith("beside") else name]  # `up` starts no indexing
    assert one["build"]["target"] == target
    assert one["image"] == f"beside:{target}"
    assert ("deploy" in one) == (target == "gpu")
    assert one["user"].split(":")[0] != "0"
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
    assert any(volume.endswith("/images:ro") for volume in one["volumes"])
    assert not one.get("privileged")


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_the_commands_exist(name, capsys):
    command, *arguments = COMPOSE["services"][name]["command"]
    assert run([command, "--help"]) == 0
    described = capsys.readouterr().out
    assert all(option in described for option in arguments if option.startswith("--"))
