"""What a benchmark leaves behind: figures with intervals, and all that is needed to make them again."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("results")
DEFAULT_DATA = Path(os.environ.get("BESIDE_DATA", ROOT.parent / "shared" / "data"))
"""The evaluation photographs and phrase tables; never part of the project."""

_PACKAGES = ("torch", "open_clip_torch", "timm", "transformers", "faiss-cpu", "numpy", "pillow", "spacy")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Attributes
    ----------
    name : str
        Snake case.
    value : float
    unit : str
        ``share``, ``ms``, ``images/s``, ``bytes``, ``count`` ...
    low, high : float or None
        95 % interval.
    n : int or None
        Sample size.
    """

    name: str
    value: float
    unit: str = "share"
    low: float | None = None
    high: float | None = None
    n: int | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f"  [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.name:<34}{self.value:>10.4g} {self.unit}{interval}" + (
            f"  n={self.n}" if self.n else ""
        )


def parser(description: str) -> argparse.ArgumentParser:
    """The options every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--data", type=Path, help="data folder; see the module's text")
    options.add_argument("--quick", action="store_true", help="a minute or two, with wider intervals")
    options.add_argument(
        "--json", type=Path, metavar="FILE", help="result file (default: benchmarks/results/)"
    )
    return options


def encoder_parser(description: str, *, default: str | None) -> argparse.ArgumentParser:
    """:func:`parser` with the options that name an encoder."""
    options = parser(description)
    options.add_argument("--encoder", default=default, help="compact or an open_clip model name")
    options.add_argument("--pretrained", help="weights file, tag or random:SEED of an open_clip model")
    return options


def write_result(
    name: str,
    metrics: Sequence[Metric],
    *,
    encoder: str | None,
    seed: int,
    device: str = "cpu",
    path: Path | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Print the metrics and write the result file.

    Parameters
    ----------
    name : str
        Of the benchmark; the default file is ``results/NAME-COMMIT.json``.
    encoder : str or None
        What was measured, said so that nobody takes it for something else.
    extra : mapping, optional
        Curves, tables and settings.

    Returns
    -------
    Path
        Where it was written.
    """
    commit = _git("rev-parse", "--short=12", "HEAD")
    path = path or RESULTS / f"{name}-{commit or 'unknown'}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    for metric in metrics:
        print(metric)
    document = {
        "benchmark": name,
        "commit": commit,
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "command": " ".join(["python -m", f"benchmarks.{name}", *sys.argv[1:]]),
        "encoder": encoder,
        "device": device,
        "cpu": _cpu(),
        "threads": _threads(),
        "versions": {"python": platform.python_version()} | _versions(),
        "seed": seed,
        "metrics": [asdict(metric) for metric in metrics],
    } | dict(extra or {})
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"-> {path}", file=sys.stderr)
    return path


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of independent trials."""
    if not n:
        return 0.0, 1.0
    z, p = 1.959964, successes / n
    centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)


def cluster_bootstrap(
    values: Sequence[float], clusters: Sequence[Any], *, seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """95 % interval of a mean whose terms are not independent within a cluster.

    Parameters
    ----------
    values : N numbers
    clusters : N labels
        Terms of one cluster are drawn together: the pairs of one photograph, say.
    """
    if not len(values):
        return 0.0, 1.0
    _, number = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    sums = np.bincount(number, weights=np.asarray(values, dtype=float))
    sizes = np.bincount(number).astype(float)
    drawn = np.random.default_rng(seed).integers(0, len(sums), size=(resamples, len(sums)))
    means: NDArray[np.float64] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def share(name: str, values: Sequence[float], clusters: Sequence[Any]) -> Metric:
    """A mean with its cluster bootstrap interval; where every value is 0, or 1, Wilson's for as many clusters."""
    low, high = cluster_bootstrap(values, clusters)
    if low == high and low in (0.0, 1.0):
        each = len(set(map(str, clusters)))
        low, high = wilson(low * each, each)
    return Metric(name, float(np.mean(values)) if len(values) else math.nan, "share", low, high, len(values))


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _threads() -> int:
    torch = sys.modules.get("torch")
    return (
        int(torch.get_num_threads())
        if torch
        else int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    )
