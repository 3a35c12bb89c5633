"""Where pictures come from: a folder, a list of files, a table with columns, or tar shards.

Whatever the source, a picture has a relative path below one root, and its id is a hash of that path; so the same
picture named by a folder, a list or a table is the same image, and an index may go from one to another.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from indexer.errors import IndexerError, UnreadableImage, UnreadableReason, UnusableFolder
from indexer.images import OpenedImage, open_image
from indexer.ledger import LEDGER_SCHEMA
from indexer.scan import (
    IMAGE_SUFFIXES,
    ScannedFile,
    escape_path,
    format_id,
    inspect_file,
    open_regular,
    scan_folder,
    to_os_path,
)

PATH = "path"
"""The column of a table that names the files."""

_LISTS = frozenset({".txt", ".lst", ".list"})
_TABLES = frozenset({".csv", ".parquet"})
_COLUMN_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_date,
    pa.types.is_timestamp,
)  # fmt: skip


class NoImages(IndexerError):
    """A source in which nothing can be indexed."""


class BadSource(IndexerError):
    """A list, table or shard that does not say which pictures it means."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """What is to be indexed.

    Attributes
    ----------
    root : Path
        The folder that the relative paths start from.
    files : sequence of ScannedFile
        In id order, every id once.
    columns : pyarrow.Table or None
        What else is known of each file, row n of file n: columns of the ledger to be.
    """

    root: Path
    files: Sequence[ScannedFile]
    columns: pa.Table | None = None


def find_pictures(source: Path, *, root: Path | None = None, exclude: Path | None = None) -> Collection:
    """List what is to be indexed.

    Parameters
    ----------
    source : Path
        One of

        - a folder of pictures, walked to its depths; one that holds no pictures but ``.tar`` files is taken as shards;
        - a ``.tar`` file of pictures, as webdataset writes them;
        - a ``.txt`` file with a path a line, to pictures or ``.tar`` files;
        - a ``.csv`` or ``.parquet`` file with a column ``path``; its other columns go into the ledger.
    root : Path, optional
        For lists and tables: the folder that relative paths start from and that all paths lie below. By default the
        folder of the list or table itself.
    exclude : Path, optional
        A folder to leave out: the index itself.

    Raises
    ------
    UnusableFolder
        It cannot be read.
    BadSource
        A path outside the root, a path twice in a table, a column that cannot be kept.
    NoImages
        Nothing to index.
    """
    columns = None
    kind = source.suffix.lower()
    if kind in _LISTS and source.is_file():
        root = root or source.parent
        files = [file for path in dict.fromkeys(_lines(source)) for file in _named(path, root)]
    elif kind in _TABLES and source.is_file():
        root = root or source.parent
        table = _table(source)
        files = [_one(path, root, source) for path in table[PATH].to_pylist()]
        columns = table.drop_columns([PATH])
    elif kind == ".tar" and source.is_file():
        root = source.parent
        files = list(_members(source, root))
    else:
        root = source
        files = list(scan_folder(source, exclude=exclude))
        if not any(file.problem is None for file in files):
            shards = sorted(path for path in source.iterdir() if path.suffix.lower() == ".tar")
            files += [file for shard in shards for file in _members(shard, root)]
    if not files:
        raise NoImages(
            f"no pictures in {source}",
            expected="files with a picture's extension, at any depth",
            fix="Name the folder, list, table or tar file that holds them.",
        )
    order = np.argsort(np.array([file.id for file in files], dtype=np.int64), kind="stable").tolist()
    files = [files[row] for row in order]
    _require_distinct(files)
    return Collection(
        root, files, columns.take(order) if columns is not None and columns.num_columns else None
    )


def find_original(root: Path, relative_path: str) -> ScannedFile:
    """Find the file, or the part of a tar file, that a relative path of an index stands for.

    Raises
    ------
    BadName
        No source can have written this path.
    """
    path = to_os_path(root, relative_path)
    for folder in path.parents:
        if folder == root:
            break
        if folder.suffix.lower() == ".tar" and folder.is_file():
            status = folder.stat()
            members = _member_index(folder, root, status.st_mtime_ns, status.st_size)
            missing = ScannedFile(
                relative_path, path, problem=UnreadableReason.MISSING, detail="not in its tar file any more"
            )
            return members.get(relative_path, missing)
    return inspect_file(relative_path, path)


def open_original(root: Path, relative_path: str, *, reduce_to: int | None = None) -> OpenedImage:
    """Decode the picture that a relative path of an index stands for.

    Raises
    ------
    UnreadableImage
    """
    file = find_original(root, relative_path)
    if file.problem is not None:
        raise UnreadableImage(file.problem, file.detail, name=relative_path)
    if file.offset is None:
        return open_image(file.path, reduce_to=reduce_to)
    with open_regular(file.path) as archive:
        archive.seek(file.offset)
        return open_image(archive.read(file.size), reduce_to=reduce_to)


# Lists and tables ------------------------------------------------------------------------------------------


def _lines(source: Path) -> Iterator[str]:
    """Paths of a list, a line each; bytes that are not UTF-8 stay what they are."""
    try:
        with source.open("rb") as file:
            for line in file:
                if path := line.rstrip(b"\r\n"):
                    yield os.fsdecode(path)
    except OSError as error:
        raise UnusableFolder(str(source), error.strerror or str(error)) from error


def _table(source: Path) -> pa.Table:
    try:
        table = pq.read_table(source) if source.suffix.lower() == ".parquet" else pyarrow.csv.read_csv(source)
    except (OSError, pa.ArrowException) as error:
        raise BadSource(f"{source} cannot be read", came=str(error).splitlines()[0]) from error
    if PATH not in table.column_names:
        raise BadSource(f"{source} has no column of paths", expected=PATH, came=", ".join(table.column_names))
    reserved = set(LEDGER_SCHEMA.names) - {PATH}
    columns = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_large_string(column.type):
            column = column.cast(pa.string())
        if name in reserved or name in columns:
            raise BadSource(f"{source}: the index has a column of the name {name!r}", fix="Rename it.")
        if not any(fits(column.type) for fits in _COLUMN_TYPES):
            raise BadSource(
                f"{source}: column {name!r} cannot be kept",
                expected="text, numbers, booleans, dates or times",
                came=column.type,
                fix="Leave it out.",
            )
        columns[name] = column.combine_chunks()
    paths = columns[PATH]
    if not pa.types.is_string(paths.type) or paths.null_count:
        raise BadSource(f"{source}: a path is missing or no text", expected="text in every row")
    if len(paths.unique()) < len(paths):
        counts = paths.value_counts().to_pylist()
        raise BadSource(
            f"{source} names a file twice", came=next(c["values"] for c in counts if c["counts"] > 1)
        )
    return pa.table(columns)


def _named(path: str, root: Path) -> Iterator[ScannedFile]:
    """What a line of a list stands for."""
    if path.lower().endswith(".tar"):
        yield from _members(_below(path, root), root)
    else:
        yield _one(path, root, None)


def _one(path: str, root: Path, source: Path | None) -> ScannedFile:
    found = _below(path, root, source)
    return inspect_file(escape_path(os.path.relpath(found, os.path.abspath(root))), found)  # noqa: PTH100


def _below(path: str, root: Path, source: Path | None = None) -> Path:
    """An absolute path, links left alone: a picture is where the list says it is."""
    top = os.path.abspath(root)  # noqa: PTH100
    found = os.path.normpath(os.path.join(top, path))  # noqa: PTH118
    if not found.startswith(top.rstrip(os.sep) + os.sep):
        raise BadSource(
            f"a path lies outside {root}",
            came=escape_path(path),
            fix="Name a folder above all of them with --root.",
        )
    return Path(found)


def _require_distinct(files: Sequence[ScannedFile]) -> None:
    for one, other in pairwise(files):
        if one.id == other.id:
            same = one.relative_path == other.relative_path
            raise BadSource(
                f"two {'files have one path' if same else 'paths have one id'} ({format_id(one.id)})",
                came=one.relative_path if same else f"{one.relative_path} and {other.relative_path}",
                fix="Rename one of them.",
            )


# Tar shards ------------------------------------------------------------------------------------------------


def _members(shard: Path, root: Path) -> Iterator[ScannedFile]:
    """Pictures of a shard, found without reading them; where a name is there twice, the last one counts, as in tar."""
    found: dict[str, ScannedFile] = {}
    name = escape_path(os.path.relpath(shard, root))
    try:
        with tarfile.open(shard, "r:", errors="surrogateescape") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                hidden = any(part.startswith(".") for part in parts)
                if hidden or not member.isreg() or Path(member.name).suffix.lower() not in IMAGE_SUFFIXES:
                    continue
                path = f"{name}/{escape_path('/'.join(parts))}"
                found[path] = ScannedFile(path, shard, size=member.size, offset=member.offset_data)
    except tarfile.TarError as error:
        reason = UnreadableReason.TRUNCATED if found else UnreadableReason.BROKEN
        found[name] = ScannedFile(
            name, shard, problem=reason, detail=f"{error}; a shard is a plain, uncompressed tar file"
        )
    except OSError as error:
        found[name] = inspect_file(name, shard)
        if found[name].problem is None:
            found[name] = ScannedFile(name, shard, problem=UnreadableReason.BROKEN, detail=str(error))
    yield from found.values()


@lru_cache(maxsize=4096)
def _member_index(shard: Path, root: Path, modified_ns: int, size: int) -> dict[str, ScannedFile]:
    """By relative path; the time and size are there to notice another file of the name."""
    return {file.relative_path: file for file in _members(shard, root)}
