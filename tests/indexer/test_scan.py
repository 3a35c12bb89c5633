from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.errors import BadName, UnreadableImage, UnreadableReason, UnusableFolder
from indexer.images import open_image
from indexer.scan import (
    ScannedFile,
    content_hash,
    escape_path,
    format_id,
    image_id,
    parse_id,
    scan_folder,
    to_os_path,
    unescape_path,
)
from tests.corpus import ODD_NAMES, Corpus, write_corpus, write_links, write_names, write_skipped

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::RuntimeWarning:PIL")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path / "pictures")
    corpus.root.mkdir()
    for write in (write_names, write_links, write_skipped):
        write(corpus)
    return corpus


def by_path(root: Path, exclude: Path | None = None) -> dict[bytes, ScannedFile]:
    entries = list(scan_folder(root, exclude=exclude))
    found = {unescape_path(entry.relative_path): entry for entry in entries}
    assert len(found) == len(entries)
    return found


def test_what_is_found(corpus: Corpus) -> None:
    found = by_path(corpus.root)
    assert {path for path, entry in found.items() if entry.problem is None} == set(corpus.readable)
    assert {path: entry.problem for path, entry in found.items() if entry.problem} == corpus.unreadable
    for entry in found.values():
        assert bool(entry.detail) == bool(entry.problem)
        if entry.problem is None:
            assert entry.size == entry.path.stat().st_size
            assert entry.modified_ns == entry.path.stat().st_mtime_ns


def test_whole_corpus_decodes_as_it_says(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "pictures")
    found = by_path(corpus.root)
    reasons = {}
    for path, entry in found.items():
        try:
            if entry.problem:
                reasons[path] = entry.problem
            else:
                open_image(entry.path)
        except UnreadableImage as error:
            reasons[path] = error.reason
    stub = b"cases/phone.heic"  # what becomes of it depends on the extra
    assert reasons.pop(stub)
    assert reasons == {path: reason for path, reason in corpus.unreadable.items() if path != stub}
    assert set(found) == set(corpus.readable) | set(corpus.unreadable)


def test_order_is_by_bytes_and_repeats(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/z.jpg", "a/b/c.jpg", "c.jpg", "B.JPG", "a.jpg", "é.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    order = [entry.relative_path for entry in scan_folder(tmp_path)]
    assert order == ["B.JPG", "a.jpg", "b.jpg", "c.jpg", "é.jpg", "a/z.jpg", "a/b/c.jpg"]
    assert order == [entry.relative_path for entry in scan_folder(tmp_path)]


def test_real_name_wins_over_a_link(tmp_path: Path) -> None:
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "photo.jpg").touch()
    (tmp_path / "a").symlink_to("z")
    assert [entry.relative_path for entry in scan_folder(tmp_path)] == ["z/photo.jpg"]


def test_index_folder_is_left_out(tmp_path: Path) -> None:
    index = tmp_path / "index"
    (index / "thumbs").mkdir(parents=True)
    (index / "thumbs" / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    (tmp_path / "shortcut").symlink_to("index")
    assert set(by_path(tmp_path, index)) == {b"b.jpg"}
    assert set(by_path(tmp_path, tmp_path / "none")) == {b"b.jpg", b"index/thumbs/a.jpg"}
    assert set(by_path(tmp_path, tmp_path)) == {b"b.jpg", b"index/thumbs/a.jpg"}


def test_unreadable_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "a.jpg").touch()
    scandir = os.scandir

    def refuse(path: bytes) -> object:
        if os.fsencode(path).endswith(b"private"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("indexer.scan.os.scandir", refuse)  # as root, no mode bit refuses anything
    found = by_path(tmp_path)
    assert set(found) == {b"a.jpg", b"private"}
    assert found[b"private"].problem is UnreadableReason.PERMISSION
    assert "Permission denied" in found[b"private"].detail


def test_unusable_roots_fail_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root, came in ((tmp_path / "none", "nothing"), (tmp_path / "file", "a file")):
        with pytest.raises(UnusableFolder, match=came):
            scan_folder(root)
    assert list(scan_folder(tmp_path)) == []


# Names ---------------------------------------------------------------------------------------------------


def test_odd_names_lead_back_to_their_files(corpus: Corpus) -> None:
    for entry in scan_folder(corpus.root / "names"):
        path = to_os_path(corpus.root / "names", entry.relative_path)
        assert os.fsencode(path) == os.fsencode(entry.path)
        assert path.read_bytes()
        assert json.loads(json.dumps(entry.relative_path)) == entry.relative_path
        assert len(entry.relative_path.splitlines()) == 1
        assert all(character.isprintable() or character == " " for character in entry.relative_path)


def test_ordinary_names_are_left_alone() -> None:
    for name in ("100% sure.jpg", "\u6d77 \U0001f996.jpg", "a/b c/d.jpg", "5%.jpg", "e\u0301.jpg"):
        assert escape_path(name) == name
    assert escape_path(b"caf\xe9.jpg") == "caf%E9.jpg"
    assert escape_path(b"%41.jpg") == "%2541.jpg"
    assert len({escape_path(name) for name in ODD_NAMES}) == len(ODD_NAMES)


@given(st.one_of(st.binary(), st.text(alphabet="%25aF\n", max_size=9).map(str.encode)))
def test_escaping_is_reversible(raw: bytes) -> None:
    text = escape_path(raw)
    assert unescape_path(text) == raw
    text.encode()
    assert text.splitlines() in ([], [text])


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../a.jpg", "a/../../b.jpg", "a//b", "%2E%2E/a", "a%00", ".", "a%2F..%2F..%2Fb"],
)
def test_paths_cannot_leave_the_folder(path: str, tmp_path: Path) -> None:
    with pytest.raises(BadName):
        to_os_path(tmp_path, path)


# Ids -----------------------------------------------------------------------------------------------------


@given(st.text())
def test_ids_are_63_bits_of_sha256(path: str) -> None:
    path = escape_path(path.encode("utf-8", "surrogatepass"))
    number = image_id(path)
    assert 0 <= number < 2**63
    assert f"{number:063b}" == f"{int(hashlib.sha256(path.encode()).hexdigest(), 16):0256b}"[:63]
    assert len(format_id(number)) == 16
    assert parse_id(format_id(number)) == number


@pytest.mark.parametrize(
    "text", ["", "42", "g" * 16, "8" + "0" * 15, "0" * 17, "-" + "0" * 15, "\u0660" * 16, "0" * 16 + "\n"]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(BadName, match="16 hexadecimal digits"):
        parse_id(text)


# Contents ------------------------------------------------------------------------------------------------


def test_content_hash_sees_the_same_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"one")
    before = content_hash(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=times)
    assert content_hash(path) != before == hashlib.sha256(b"one").hexdigest()
    for name, reason in (("none", UnreadableReason.MISSING), (".", UnreadableReason.NOT_A_FILE)):
        with pytest.raises(UnreadableImage) as caught:
            content_hash(tmp_path / name)
        assert caught.value.reason is reason
