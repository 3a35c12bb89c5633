"""What lies in a folder of pictures: which files to index, under which names and ids.

What this module holds to:

- the same folder gives the same entries in the same order, on every run and file system;
- nothing that looks like a picture vanishes: what cannot be read is yielded with its reason;
- a walk ends, whatever links lead where;
- a name is text that is safe in JSON, Parquet, HTML and on one terminal line, and leads back to the very
  bytes on disk;
- an image's id depends on its relative path alone, so that a rebuild, a resumed build and a build on another
  machine agree, and the order of ids (the order of storage, and of ties) does not depend on the walk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from indexer.errors import BadName, UnreadableImage, UnreadableReason, UnusableFolder

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".tif", ".tiff", ".bmp"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpx", ".avif", ".heic", ".heif", ".hif"}
)
"""Names that promise a picture, compared without case. HEIC and AVIF are always among them: where their
decoder is missing the ledger says which extra to install, which a skipped file could not."""

SKIPPED_FOLDERS = frozenset({"@eadir", "__macosx"})
"""Thumbnail and resource folders that a NAS and an archiver leave behind; dotted names are skipped too."""

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """One entry of a folder: a file to index, or something that cannot be one, with the reason.

    ``size`` and ``modified_ns`` describe the file that a link leads to; both are 0 for a problem.
    """

    relative_path: str
    path: Path
    size: int = 0
    modified_ns: int = 0
    problem: UnreadableReason | None = None
    detail: str = ""
    offset: int | None = None
    """Where its bytes begin in ``path``, for a member of an archive."""

    @property
    def id(self) -> int:
        """The image id, see `image_id`."""
        return image_id(self.relative_path)


def scan_folder(root: Path, *, exclude: Path | None = None) -> Iterator[ScannedFile]:
    """Walk a folder and yield its pictures and the problems met, in a fixed order.

    Names are compared as bytes. Real folders come first, depth first; then folders that only a link reaches,
    under the link's name. A folder is walked once, whatever number of links lead to it, so loops end and a
    picture inside the tree keeps its real name. Links to files are followed and are entries of their own.

    Parameters
    ----------
    root : Path
        The folder of pictures.
    exclude : Path, optional
        A folder below `root` to leave out, with everything in it: the index itself.

    Yields
    ------
    ScannedFile
        A file by its suffix, or a problem: a dangling link (`MISSING`), a folder that may not be read
        (`PERMISSION`), a folder, pipe, socket or device under a picture's name (`NOT_A_FILE`).

    Raises
    ------
    UnusableFolder
        At once, not at the first entry: `root` is missing, not a folder, or not readable.
    """
    try:
        if not root.is_dir():
            raise UnusableFolder(str(root), "a file" if root.exists() else "nothing of that name")
        with os.scandir(root):
            pass
        return _walk(root, _identity(root), _identity(exclude) if exclude and exclude.exists() else None)
    except OSError as error:
        raise UnusableFolder(str(root), error.strerror or str(error)) from error


def inspect_file(relative_path: str, path: Path) -> ScannedFile:
    """Describe one file that was named, whatever its suffix; what cannot be a picture comes with its reason."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = _reason(error) if isinstance(error, OSError) else UnreadableReason.MISSING
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return ScannedFile(relative_path, path, problem=reason, detail=detail)
    if not stat.S_ISREG(status.st_mode):
        detail = _kind(status.st_mode)
        return ScannedFile(relative_path, path, problem=UnreadableReason.NOT_A_FILE, detail=detail)
    return ScannedFile(relative_path, path, status.st_size, status.st_mtime_ns)


def _walk(
    root: Path, root_identity: tuple[int, int], excluded: tuple[int, int] | None
) -> Iterator[ScannedFile]:
    seen = {root_identity}
    if excluded is not None and excluded != root_identity:
        seen.add(excluded)
    linked: list[bytes] = []
    yield from _walk_real(os.fsencode(root), b"", seen, linked)
    while linked:
        waiting = sorted(linked)
        linked = []
        for relative in waiting:
            if _first_visit(os.path.join(os.fsencode(root), relative), seen):  # noqa: PTH118  bytes
                yield from _walk_real(os.fsencode(root), relative, seen, linked)


def _walk_real(
    root: bytes, start: bytes, seen: set[tuple[int, int]], linked: list[bytes]
) -> Iterator[ScannedFile]:
    """Walk below `start` without following links to folders, which are added to `linked`."""
    stack = [start]
    while stack:
        folder = stack.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as found:  # noqa: PTH118  bytes
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield _problem(root, folder, _reason(error), f"folder cannot be read: {error.strerror}")
            continue
        folders = []
        for entry in entries:
            if entry.name.startswith(b"."):
                continue
            relative = os.path.join(folder, entry.name)  # noqa: PTH118  bytes
            if _is_folder(entry):
                if entry.name.lower() in {name.encode() for name in SKIPPED_FOLDERS}:
                    continue
                if _has_image_suffix(entry.name):
                    detail = "a folder under a picture's name"
                    yield _problem(root, relative, UnreadableReason.NOT_A_FILE, detail)
                if entry.is_symlink():
                    linked.append(relative)
                elif _first_visit(entry.path, seen):
                    folders.append(relative)
            else:
                yield from _file(root, relative, entry)
        stack.extend(reversed(folders))


def _file(root: bytes, relative: bytes, entry: os.DirEntry[bytes]) -> Iterator[ScannedFile]:
    named_as_image = _has_image_suffix(entry.name)
    try:
        status = entry.stat()
    except OSError as error:
        # A dangling link without a suffix may be a folder of pictures on a drive that is not there.
        if named_as_image or b"." not in entry.name:
            what = "a link that leads nowhere" if entry.is_symlink() else str(error.strerror)
            yield _problem(root, relative, _reason(error), what)
        return
    if not named_as_image:
        return
    if not stat.S_ISREG(status.st_mode):
        yield _problem(root, relative, UnreadableReason.NOT_A_FILE, _kind(status.st_mode))
        return
    yield ScannedFile(
        relative_path=escape_path(relative),
        path=Path(os.fsdecode(entry.path)),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
    )


def _problem(root: bytes, relative: bytes, reason: UnreadableReason, detail: str) -> ScannedFile:
    path = Path(os.fsdecode(os.path.join(root, relative)))  # noqa: PTH118  bytes
    return ScannedFile(escape_path(relative), path, problem=reason, detail=detail)


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _first_visit(path: bytes, seen: set[tuple[int, int]]) -> bool:
    try:
        identity = _identity(path)
    except OSError:
        return True  # let the walk meet the error and report it
    if identity in seen:
        return False
    seen.add(identity)
    return True


def _identity(path: Path | bytes) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116  bytes
    return status.st_dev, status.st_ino


def _has_image_suffix(name: bytes) -> bool:
    return os.fsdecode(os.path.splitext(name)[1]).lower() in IMAGE_SUFFIXES  # noqa: PTH122  bytes


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"))
    kind = next((name for test, name in kinds if test(mode)), "device")
    return f"a {kind} under a picture's name"


def _reason(error: OSError) -> UnreadableReason:
    match error.errno:
        case errno.ENOENT | errno.ELOOP | errno.ENOTDIR | errno.ENAMETOOLONG:
            return UnreadableReason.MISSING
        case errno.EACCES | errno.EPERM:
            return UnreadableReason.PERMISSION
        case errno.ENXIO:  # what opening a socket says
            return UnreadableReason.NOT_A_FILE
        case _:
            return UnreadableReason.BROKEN


# Names ----------------------------------------------------------------------------------------------------


def escape_path(path: bytes | str | Path) -> str:
    r"""Write a path from disk as safe text that `unescape_path` turns back into the same bytes.

    Ordinary names, in any script, stay as they are. Written as ``%XX`` are the bytes that are not UTF-8,
    control characters and line separators, and a ``%`` that would otherwise read as such an escape.

    Parameters
    ----------
    path : bytes, str or Path
        As the operating system gives it (undecodable bytes as surrogates).

    Returns
    -------
    str
        Text without control characters or surrogates, folders parted by ``/``.

    Examples
    --------
    >>> escape_path(b"holiday/caf\xe9.jpg"), escape_path("100% café.jpg"), escape_path("a%20b\n.jpg")
    ('holiday/caf%E9.jpg', '100% café.jpg', 'a%2520b%0A.jpg')
    """
    raw = os.fsencode(path)
    if os.sep != "/":
        raw = raw.replace(os.sep.encode(), b"/")
    text = _ESCAPE.sub(rb"%25\1", raw).decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    unsafe = unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
    if not unsafe:
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def unescape_path(relative_path: str) -> bytes:
    r"""Return the bytes on disk that `escape_path` wrote as this text.

    Examples
    --------
    >>> unescape_path("caf%E9.jpg"), unescape_path("a%2520b.jpg")
    (b'caf\xe9.jpg', b'a%20b.jpg')
    """
    return _ESCAPE.sub(
        lambda match: bytes([int(match[1], 16)]), relative_path.encode("utf-8", "surrogatepass")
    )


def to_os_path(root: Path, relative_path: str) -> Path:
    """Find the file of a relative path that a scan of `root` wrote.

    Raises
    ------
    BadName
        The path is empty, absolute, holds a NUL, or would leave `root`.
    """
    raw = unescape_path(relative_path)
    parts = raw.split(b"/")
    if b"\0" in raw or any(part in {b"", b".", b".."} for part in parts):
        raise BadName(
            f"relative path {relative_path!r}", expected="parts below the folder of pictures, parted by /"
        )
    return root.joinpath(*(os.fsdecode(part) for part in parts))


# Ids ------------------------------------------------------------------------------------------------------


def image_id(relative_path: str) -> int:
    """Return the image id of a relative path: the first 63 bits of the SHA-256 of its UTF-8 text.

    Returns
    -------
    int
        In [0, 2**63), so that it fits the signed 64-bit ids of FAISS, Parquet and Milvus. Two of a million
        pictures share an id with probability 5e-8; a builder has to check and must not overwrite.

    Examples
    --------
    >>> format_id(image_id("holiday/beach.jpg"))
    '1df977e6c3a1f9ba'
    """
    digest = hashlib.sha256(relative_path.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def format_id(image_id: int) -> str:
    """Write an image id as users see it: 16 lower-case hexadecimal digits."""
    return f"{image_id:016x}"


def parse_id(text: str) -> int:
    """Read what `format_id` wrote, in either case.

    Raises
    ------
    BadName
        Anything but 16 hexadecimal digits below 2**63.

    Examples
    --------
    >>> parse_id("000000000000002a")
    42
    """
    if not re.fullmatch(r"[0-7][0-9A-Fa-f]{15}", text):
        raise BadName("image id", expected="16 hexadecimal digits, the first 0 to 7", came=repr(text))
    return int(text, 16)


# Contents -------------------------------------------------------------------------------------------------


def open_regular(path: Path) -> BufferedReader:
    """Open a plain file for reading, and nothing else: a pipe or a device could make its reader wait.

    Raises
    ------
    UnreadableImage
        With `MISSING`, `PERMISSION`, `NOT_A_FILE`, or `BROKEN` for an input or output error.
    """
    name = escape_path(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer. For plain files it means nothing.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = _reason(error) if isinstance(error, OSError) else UnreadableReason.MISSING
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableImage(reason, detail, name=name) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise UnreadableImage(UnreadableReason.NOT_A_FILE, _kind(mode), name=name)
    return open(descriptor, "rb")  # noqa: PTH123  a descriptor


def read_regular(path: Path, offset: int | None = None, size: int = 0) -> bytes:
    """Read a plain file, or the part of an archive that is a file.

    Parameters
    ----------
    offset, size : int, optional
        Where the part begins, and its bytes; without them the whole file.

    Raises
    ------
    UnreadableImage
        As `open_regular`, or with `TRUNCATED` where the archive ends too early.
    OSError
        A disk that fails while the file is read.
    """
    with open_regular(path) as file:
        if offset is None:
            return file.read()
        file.seek(offset)
        content = file.read(size)
    if len(content) < size:
        raise UnreadableImage(
            UnreadableReason.TRUNCATED, f"the archive ends {size - len(content):,} bytes early"
        )
    return content


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hexadecimal digits, read in pieces.

    Raises
    ------
    UnreadableImage
        The file cannot be opened or read.
    """
    with open_regular(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UnreadableImage(_reason(error), str(error), name=escape_path(path)) from error
