"""What the command line prints, line by line, and how it tells how far a build is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from indexer.build import BuildSummary, Progress
    from parser import ParsedQuery
    from service.results import SearchResult

_SHOWN_FILES = 5


def result_lines(result: SearchResult) -> Iterator[str]:
    """Write a result, a hit a line."""
    from service.readout import say  # noqa: PLC0415

    if result.ranked_relations:
        relations = ", ".join(map(say, result.ranked_relations))
        yield f"ranked by: {relations} ({result.readout}, weight {result.weight:.2g})"
    for hit in result.hits:
        line = f"{hit.rank:>4}  {hit.score:7.4f}"
        if result.ranked_relations:
            line += f"  native {hit.native_score:7.4f} (rank {hit.native_rank:>4})  spatial {hit.spatial_score:+8.4f}"
        yield f"{line}  {hit.path}"
        if hit.contributions:
            parts = zip(result.ranked_relations, hit.contributions, strict=True)
            yield " " * 15 + "; ".join(f"{say(relation)} {value:+.4f}" for relation, value in parts)


def parsed_lines(parsed: ParsedQuery) -> Iterator[str]:
    """Write what was read out of a query."""
    for one in parsed.relations:
        yield " ".join(filter(None, (one.subject, f"[{one.relation.value}]", one.object)))
    for note in parsed.unscored:
        yield f"not scored: {note.phrase} ({note.reason})"
    for warning in parsed.warnings:
        yield f"note: {warning}"
    if not parsed.relations and not parsed.unscored:
        yield "no relation: ranked by the native score alone"


def facts_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Write what an index is."""
    encoder, sketch = facts["encoder"], facts["sketch"]
    unreadable = ", ".join(f"{count} {reason}" for reason, count in facts["unreadable"].items())
    yield f"images      {facts['images']} indexed, {unreadable or 'none'} unreadable"
    yield f"from        {facts['image_root']}"
    yield f"created     {facts['created']}"
    yield f"encoder     {encoder['name']} ({encoder['pretrained']}), {encoder['dim']} dimensions"
    yield f"patches     {encoder['dense_mode']}, {encoder['dense_view']} view, grid {encoder['grid']}"
    yield (
        f"sketch      {sketch['k']} components an axis, {sketch['precision']}, lambda {sketch['lambda']:.4g} "
        f"(fitted on {sketch['fitted_on']} images)"
        + ("; the collection has outgrown it: beside index --refit" if sketch["refit_due"] else "")
    )
    total = sum(facts["bytes"].values())
    yield f"on disk     {total / 1e6:.1f} MB, {total / max(1, facts['images']):.0f} bytes an image"


def summary_to_dict(summary: BuildSummary) -> dict[str, Any]:
    """Write what a build did as plain JSON values."""
    names = ("indexed", "encoded", "reused", "removed", "seconds", "images_per_s")
    unreadable = {reason: list(paths) for reason, paths in summary.unreadable.items()}
    return {name: getattr(summary, name) for name in names} | {"unreadable": unreadable}


def summary_line(summary: BuildSummary) -> str:
    """Write what a build did."""
    parts = [f"{summary.encoded} encoded", f"{summary.reused} unchanged", f"{summary.removed} removed"]
    return (
        f"{summary.indexed} images indexed ({', '.join(parts)}) in {summary.seconds:.1f} s, "
        f"{summary.images_per_s:.1f} images/s, {sum(map(len, summary.unreadable.values()))} unreadable."
    )


def unreadable_lines(summary: BuildSummary) -> Iterator[str]:
    """Name the unreadable files, a line a reason."""
    for reason, paths in summary.unreadable.items():
        shown = ", ".join(paths[:_SHOWN_FILES])
        more = f" and {len(paths) - _SHOWN_FILES} more" if len(paths) > _SHOWN_FILES else ""
        yield f"beside: unreadable, {reason.replace('_', ' ')}: {shown}{more}"


@contextmanager
def progress_on_stderr() -> Iterator[Callable[[Progress], None]]:
    """Tell how far a build is: a bar on a terminal, a line every ten seconds elsewhere."""
    if not sys.stderr.isatty():
        yield _LinesOfProgress()
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, note="looking for pictures")

        def show(now: Progress) -> None:
            bar.update(task, completed=now.done, total=now.total, note=_note(now))

        yield show


class _LinesOfProgress:
    """A line every ten seconds, for logs."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, now: Progress) -> None:
        if time.monotonic() - self._last >= 10:
            self._last = time.monotonic()
            typer.echo(f"{now.done}/{now.total}  {_note(now)}", err=True)


def _note(now: Progress) -> str:
    parts = [f"{now.images_per_s:.1f} images/s"]
    if now.seconds_left is not None:
        minutes, seconds = divmod(round(now.seconds_left), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    parts += [f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(now.unreadable.items())]
    return ", ".join(parts)
