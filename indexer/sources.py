"""Where pictures come from: a folder, a list of files, a table with columns, or tar shards.

Whatever the source, a picture has a relative path below one root, and its id is a hash of that path; so the same
picture named by a folder, a list or a table is the same image, and an index may go from one to another.
"""

from __future__ import annotations

import codecs
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from indexer.errors import IndexerError, UnreadableImage, UnreadableReason, UnusableFolder
from indexer.images import OpenedImage, open_image
from indexer.ledger import LEDGER_SCHEMA
from indexer.scan import (
    IMAGE_SUFFIXES,
    SKIPPED_FOLDERS,
    ScannedFile,
    escape_path,
    format_id,
    inspect_file,
    read_regular,
    scan_folder,
    to_os_path,
)

PATH = "path"
"""The column of a table that names the files."""

_LISTS = frozenset({".txt", ".lst", ".list"})
_TABLES = frozenset({".csv", ".parquet"})
_MAX_LINKS = 40
"""How many symbolic links in a row are followed, as Linux does."""
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

        - a folder of pictures, walked to its depths; ``.tar`` files at its top are taken as shards;
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
        named = (file for path in dict.fromkeys(_lines(source)) for file in _named(path, root))
        files = list({file.relative_path: file for file in named}.values())  # a.jpg and ./a.jpg are one
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
        files += [file for shard in _shards(source) for file in _members(shard, root)]
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
    return open_image(content_of(file), reduce_to=reduce_to)


def content_of(file: ScannedFile) -> Path | bytes:
    """The path of a file, or the bytes of a member of a tar file.

    Raises
    ------
    UnreadableImage, OSError
    """
    return file.path if file.offset is None else read_regular(file.path, file.offset, file.size)


# Lists and tables ------------------------------------------------------------------------------------------


def _lines(source: Path) -> Iterator[str]:
    """Paths of a list, a line each, without a byte order mark; bytes that are not UTF-8 stay what they are."""
    try:
        with source.open("rb") as file:
            if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                file.seek(0)
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Where a member's bytes are, or the name that a symbolic link stands for, or why neither is known."""

    offset: int = 0
    size: int = 0
    link: str | None = None
    problem: UnreadableReason | None = None
    detail: str = ""


def _shards(folder: Path) -> list[Path]:
    found = (path for path in folder.iterdir() if path.suffix.lower() == ".tar")
    return sorted(path for path in found if not path.name.startswith(".") and not path.is_dir())


def _members(shard: Path, root: Path) -> Iterator[ScannedFile]:
    """Pictures of a shard, found without reading them; where a name is there twice, the last one counts, as in tar.

    A link is the member it leads to, under its own name: tar writes the second of two hard-linked files as a link.
    """
    parts: dict[str, _Part] = {}
    name = escape_path(os.path.relpath(shard, root))
    damage: ScannedFile | None = None
    try:
        with tarfile.open(shard, "r:", errors="surrogateescape") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                parts[_plain(member.name)] = _part(member, parts)
    except tarfile.TarError as error:
        reason = UnreadableReason.TRUNCATED if parts else UnreadableReason.BROKEN
        damage = ScannedFile(
            name, shard, problem=reason, detail=f"{error}; a shard is a plain, uncompressed tar file"
        )
    except OSError as error:
        damage = inspect_file(name, shard)
        if damage.problem is None:
            damage = ScannedFile(name, shard, problem=UnreadableReason.BROKEN, detail=str(error))
    for inside, part in parts.items():
        if _is_picture(inside):
            path = f"{name}/{escape_path(inside)}"
            found = _followed(part, parts)
            if found.problem is not None:
                yield ScannedFile(path, shard, problem=found.problem, detail=found.detail)
            else:
                yield ScannedFile(path, shard, size=found.size, offset=found.offset)
    if damage is not None:
        yield damage


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _is_picture(name: str) -> bool:
    """Whether a folder's scan would take a file of this name."""
    *folders, last = name.split("/")
    hidden = any(part.startswith(".") for part in (*folders, last))
    skipped = any(folder.lower() in SKIPPED_FOLDERS for folder in folders)
    return not hidden and not skipped and Path(last).suffix.lower() in IMAGE_SUFFIXES


def _part(member: tarfile.TarInfo, before: dict[str, _Part]) -> _Part:
    if member.isreg():
        return _Part(member.offset_data, member.size)
    if member.issym():
        # From the folder it lies in. What leads out of the archive is the name of no member.
        return _Part(link=os.path.normpath(PurePosixPath(_plain(member.name)).parent / member.linkname))
    if member.islnk():
        # To what the name stands for at this point: a later member of that name is another file.
        return before.get(_plain(member.linkname)) or _dead_link(member.linkname)
    return _Part(
        problem=UnreadableReason.NOT_A_FILE, detail="a folder, pipe or device under a picture's name"
    )


def _dead_link(target: str) -> _Part:
    detail = f"a link to {escape_path(target)}, which is not in the archive"
    return _Part(problem=UnreadableReason.MISSING, detail=detail)


def _followed(part: _Part, parts: dict[str, _Part]) -> _Part:
    for _ in range(_MAX_LINKS):
        if part.link is None:
            return part
        part = parts.get(part.link) or _dead_link(part.link)
    return _Part(problem=UnreadableReason.MISSING, detail="a link that leads to itself")


@lru_cache(maxsize=4096)
def _member_index(shard: Path, root: Path, modified_ns: int, size: int) -> dict[str, ScannedFile]:
    """By relative path; the time and size are there to notice another file of the name."""
    return {file.relative_path: file for file in _members(shard, root)}
