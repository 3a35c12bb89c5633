"""The command line. Heavy imports come late: ``beside parse`` and ``--help`` need no arrays and no torch.

Exit status: 0 done, 1 failed, 2 wrong use, 3 (``index --strict``) some file was unreadable. Diagnostics are
one line each on stderr; with ``--json`` stdout holds JSON alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from indexer.scan import escape_path
from service.errors import SearchError
from service.query import Mode, Readout, clean_query
from service.report import (
    facts_lines,
    parsed_lines,
    progress_on_stderr,
    result_lines,
    summary_line,
    summary_to_dict,
    unreadable_lines,
)

FAILED, WRONG_USE, UNREADABLE = 1, 2, 3

_CLICK_ERROR = typer.BadParameter.__mro__[2]  # click's own base, which typer has no public name for

app = typer.Typer(
    help="Find photographs by what stands where.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Device = Literal["auto", "cpu", "cuda"]
IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="Index folder.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]
OnDevice = Annotated[Device, typer.Option(help="Where the encoder and the scan run.")]
Weights = Annotated[str | None, typer.Option(help="Where the weights are now, if not where they were.")]
ImageRoot = Annotated[Path | None, typer.Option(help="Where the pictures are now, if not where they were.")]


def main() -> None:
    """Run a command and turn errors into one line and an exit status."""
    # One thread a query: BLAS threads that spin while another query works cost more than they give. Before
    # numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    status = run(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # torch takes seconds to take itself apart, and all that is worth keeping is on disk


def run(arguments: list[str]) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : list of str
        Without the program's name.

    Returns
    -------
    status : int
        Exit status.
    """
    try:
        return int(app(arguments, prog_name="beside", standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  (nothing is left to flush)
        return 0
    except Exception as error:
        status = _status(error)
        if status is None:
            raise
        return _say(_message(error), status)


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def index(
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Folder of pictures, .tar file, .txt list of paths, or .csv or .parquet table with a column path.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="INDEX", help="Index folder; goes on where it stopped.")],
    model: Annotated[str, typer.Option(help="compact, or an open_clip model name.")] = "compact",
    pretrained: Annotated[
        str | None, typer.Option(help="Weights: a file, or a tag in the local cache.")
    ] = None,
    device: OnDevice = "auto",
    workers: Annotated[int | None, typer.Option(min=0, help="Decoding processes; one a core.")] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, max=1024, help="Sketch components an axis; 64.")
    ] = None,
    sketch: Annotated[Literal["int8", "fp16"] | None, typer.Option(help="Number format; int8.")] = None,
    dense: Annotated[
        Literal["last", "value", "qq", "kk"] | None, typer.Option(help="How a ViT yields its patch tokens.")
    ] = None,
    view: Annotated[
        Literal["native", "frame"] | None,
        typer.Option(help="What the patch tokens see: native crop, or all."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that the paths of a list start from.")] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit basis and lambda anew: encodes every picture again.")
    ] = False,
    draft: Annotated[
        bool | None,
        typer.Option(
            "--draft/--no-draft", help="Decode large JPEGs at a lower resolution; faster, not exact."
        ),
    ] = None,
    file_seconds: Annotated[
        float, typer.Option(min=0.1, help="Longest that one file may take to read and decode.")
    ] = 60.0,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Encode on a Ray cluster: auto, local or an address."),
    ] = None,
    actors: Annotated[int, typer.Option(min=1, help="With --ray: encoders at work at a time.")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 where a file was unreadable.")] = False,
    as_json: AsJson = False,
) -> int:
    """Index pictures, go on with an interrupted index, or bring one up to date."""
    from indexer.build import build_index  # noqa: PLC0415
    from indexer.encoder import DenseMode, DenseView  # noqa: PLC0415
    from indexer.load import load_encoder  # noqa: PLC0415
    from indexer.sketch import Precision  # noqa: PLC0415
    from indexer.sources import find_pictures  # noqa: PLC0415

    pictures = find_pictures(
        images, root=root, exclude=out
    )  # refuses a wrong one before the encoder's seconds
    load = partial(
        load_encoder,
        model,
        pretrained,
        device=device,
        dense_mode=DenseMode(dense) if dense else None,
        dense_view=DenseView(view) if view else None,
    )
    encoding = None
    if ray is not None:
        from indexer.ray_build import RayEncoding  # noqa: PLC0415

        gpus = 1 if device == "cuda" else 0
        encoding = RayEncoding(load, address=ray, actors=actors, workers=workers or 1, gpus=gpus)
    encoder = load()
    with progress_on_stderr() as progress:
        summary = build_index(
            pictures,
            out,
            encoder,
            workers=workers,
            k=k,
            precision=Precision(sketch) if sketch else None,
            refit=refit,
            draft=draft,
            file_seconds=file_seconds,
            encoding=encoding,
            progress=progress,
        )
    if as_json:
        _print_json(summary_to_dict(summary))
    else:
        typer.echo(summary_line(summary))
        typer.echo(f'Search it: beside search {escape_path(out)} "a cup to the left of a laptop"')
    for line in unreadable_lines(summary):
        typer.echo(line, err=True)
    if summary.refit_due:
        _say("most pictures have come since basis and lambda were fitted; index them with --refit once", 0)
    return UNREADABLE if strict and summary.unreadable else 0


@app.command()
def search(
    index_folder: IndexFolder,
    query: Annotated[str, typer.Argument(metavar="TEXT", help="What the picture shows.", show_default=False)],
    k: Annotated[int, typer.Option("-k", help="Hits, 1 to 1000.")] = 10,
    offset: Annotated[int, typer.Option(help="Hits to leave out first.")] = 0,
    mode: Annotated[Mode, typer.Option(help="native leaves relations out of the ranking.")] = Mode.AUTO,
    depth: Annotated[
        bool, typer.Option("--depth", help="Let in front of and behind rank, by proxy.")
    ] = False,
    weight: Annotated[float, typer.Option(help="Weight of the spatial score.")] = 1.0,
    readout: Annotated[
        Readout | None, typer.Option(help="What reads the places.", show_default="the best the index has")
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out hits that score less.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="What each relation contributed.")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(help="A condition on a column of the table, as year>=2020; repeatable."),
    ] = None,
    device: OnDevice = "cpu",
    pretrained: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Search an index by text."""
    clean_query(query)  # what would be refused is refused before the encoder's seconds
    from service.query import SearchRequest  # noqa: PLC0415

    SearchRequest(query, k=k, offset=offset, weight=weight, min_score=min_score).check()
    if where:
        from indexer.store import open_index  # noqa: PLC0415
        from service.filters import rows_where  # noqa: PLC0415

        rows_where(open_index(index_folder).images, where)
    from service.facts import brief_facts  # noqa: PLC0415
    from service.search import Searcher  # noqa: PLC0415

    searcher = Searcher.open(index_folder, device=device, pretrained=pretrained, warm=False)
    result = searcher.search(
        query,
        k=k,
        offset=offset,
        mode=mode,
        depth=depth,
        weight=weight,
        readout=readout,
        min_score=min_score,
        explain=explain,
        where=tuple(where or ()),
    )
    if as_json:
        _print_json(result.to_dict() | {"index": brief_facts(searcher.index.manifest)})
        return
    for warning in result.warnings:
        typer.echo(f"beside: {warning}", err=True)
    for line in result_lines(result):
        typer.echo(line)


@app.command()
def parse(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A query, or - for a query a line.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Show how a query is read."""
    from parser import QueryParser  # noqa: PLC0415

    parser = QueryParser()
    if text == "-":
        for line in sys.stdin.buffer:
            parsed = parser.parse(line.decode("utf-8", "replace").rstrip("\r\n"))
            _print_json(parsed.to_dict(), indent=None)
        return
    parsed = parser.parse(clean_query(text))
    if as_json:
        _print_json(parsed.to_dict())
        return
    for line in parsed_lines(parsed):
        typer.echo(line)


@app.command()
def serve(
    index_folder: IndexFolder,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="8080")
    ] = None,
    images: ImageRoot = None,
    device: Annotated[Device | None, typer.Option(help="Where it runs.", show_default="auto")] = None,
    pretrained: Weights = None,
    texts: Annotated[
        Literal["torch", "onnx"] | None, typer.Option(help="What embeds texts.", show_default="torch")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Searching threads.")] = None,
) -> int:
    """Serve an index over HTTP, with a web page. Options left out come from BESIDE_HOST, BESIDE_PORT, ..."""
    from indexer.manifest import read_manifest  # noqa: PLC0415

    read_manifest(index_folder)  # a wrong folder is refused before anything listens
    from service.server import serve_index  # noqa: PLC0415

    given = {"host": host, "port": port, "images": images, "device": device, "pretrained": pretrained}
    given |= {"texts": texts, "workers": workers, "index": index_folder}
    return serve_index({name: value for name, value in given.items() if value is not None})


@app.command()
def verify(
    index_folder: IndexFolder,
    embed: Annotated[
        bool, typer.Option("--embed/--no-embed", help="Embed a sample of pictures again.")
    ] = True,
    images: ImageRoot = None,
    device: OnDevice = "auto",
    pretrained: Weights = None,
    as_json: AsJson = False,
) -> int:
    """Hold every byte of an index against its manifest, and a sample of its vectors against the pictures."""
    from indexer.load import load_encoder_for  # noqa: PLC0415
    from indexer.manifest import IndexDamaged, read_manifest  # noqa: PLC0415
    from indexer.verify import verify_index  # noqa: PLC0415

    encoder = None
    if embed:
        with suppress(IndexDamaged):  # the report will say so
            spec = read_manifest(index_folder).encoder
            encoder = load_encoder_for(spec, pretrained=pretrained, device=device)
    report = verify_index(index_folder, encoder, images=images)
    if as_json:
        _print_json(asdict(report))
    elif not report.problems:
        cosine = "" if report.lowest_cosine is None else f", lowest cosine {report.lowest_cosine:.6f}"
        facts = f"{report.indexed} images, {report.missing} of their files gone"
        typer.echo(
            f"{escape_path(index_folder)} is sound: {facts}, {report.embedded} embedded again{cosine}."
        )
    for problem in report.problems:
        _say(problem, FAILED)
    return FAILED if report.problems else 0


@app.command()
def export(
    index_folder: IndexFolder,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the export.")],
    to: Annotated[Literal["npy", "parquet"], typer.Option(help="File format of the vectors.")] = "npy",
) -> None:
    """Write one joint vector an image, for any engine that searches by inner product, and how to query it."""
    from indexer.export import ExportFormat, export_index  # noqa: PLC0415
    from indexer.store import open_index  # noqa: PLC0415

    index = open_index(index_folder)
    export_index(index, out, ExportFormat(to))
    typer.echo(f"{len(index)} vectors in {escape_path(out)}; its README.md says how to search them.")


@app.command()
def embed(
    inputs: Annotated[
        list[str], typer.Argument(metavar="TEXT|IMAGE...", help="A file that exists is a picture.")
    ],
    index_folder: Annotated[
        Path | None,
        typer.Option(
            "--index", metavar="INDEX", help="With this index's encoder; pictures get a joint vector too."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="compact, or an open_clip model name.")] = "compact",
    pretrained: Weights = None,
    device: OnDevice = "auto",
) -> None:
    """Embed texts and pictures: a JSON object a line."""
    from indexer.export import joint_vector  # noqa: PLC0415
    from indexer.images import open_image  # noqa: PLC0415
    from indexer.load import load_encoder, load_encoder_for  # noqa: PLC0415
    from indexer.store import open_index  # noqa: PLC0415

    index = None if index_folder is None else open_index(index_folder)
    if index is None:
        encoder = load_encoder(model, pretrained, device=device)
    else:
        encoder = load_encoder_for(index.manifest.encoder, pretrained=pretrained, device=device)
    for given in inputs:
        if not os.path.isfile(given):  # noqa: PTH113  (Path raises on a text that is too long for a name)
            vector = encoder.encode_texts([given]).vectors[0]
            _print_json({"text": given, "vector": vector.tolist()}, indent=None)
            continue
        reduce_to = None if index is None else index.manifest.jpeg_reduce_to
        pixels = encoder.prepare(open_image(Path(given), reduce_to=reduce_to).image)
        found = {"image": given, "vector": encoder.encode_images([pixels]).pooled[0].tolist()}
        if index is not None:
            found["joint"] = joint_vector(index, encoder, pixels).tolist()
        _print_json(found, indent=None)


@app.command()
def info(index_folder: IndexFolder, as_json: AsJson = False) -> None:
    """Show what an index is."""
    from indexer.manifest import read_manifest  # noqa: PLC0415
    from service.facts import index_facts  # noqa: PLC0415

    facts = index_facts(read_manifest(index_folder))
    if as_json:
        _print_json(facts)
        return
    for line in facts_lines(facts):
        typer.echo(line)


def _status(error: Exception) -> int | None:
    """Exit status of an error; None for one that nobody foresaw."""
    from indexer.errors import IndexerError, UnusableFolder  # noqa: PLC0415

    wrong_use: tuple[type, ...] = (SearchError, UnusableFolder, _CLICK_ERROR)
    # Only what is loaded can have been raised.
    for module, names in {
        "indexer.encoder": ("EncoderUnavailable",),
        "indexer.store": ("IndexMissing", "UnusableName"),
        "indexer.build": ("BuildRefused",),
        "indexer.sources": ("NoImages", "BadSource"),
        "indexer.export": ("ExportRefused",),
        "indexer.ray_build": ("RayUnavailable",),
        "indexer.workspace": ("OtherSketch",),
    }.items():
        if module in sys.modules:
            wrong_use += tuple(getattr(sys.modules[module], name) for name in names)
    if isinstance(error, wrong_use):
        return WRONG_USE
    return FAILED if isinstance(error, IndexerError) else None


def _message(error: Exception) -> str:
    tell: Callable[[], str] | None = getattr(error, "format_message", None)
    if tell is None:
        return str(error)
    context = getattr(error, "ctx", None)
    return f"{tell().rstrip('.')}. See: {context.command_path if context else 'beside'} --help"


def _say(message: str, status: int) -> int:
    typer.echo(f"beside: {' '.join(message.split())}", err=True)
    return status


def _print_json(values: Any, indent: int | None = 2) -> None:
    typer.echo(json.dumps(values, indent=indent, ensure_ascii=False))


if __name__ == "__main__":
    main()
