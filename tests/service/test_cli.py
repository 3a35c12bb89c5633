from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import indexer.load
import service.search
from indexer.encoder import require_same_encoder
from indexer.manifest import read_manifest
from service.cli import run
from service.server import bind
from tests.support import TinyEncoder, paint_gallery

ROOT = Path(__file__).parents[2]
QUERY = "a red square to the left of a blue square"


@pytest.fixture
def tiny(monkeypatch):
    """Let the command line load the tiny encoder, under the loader's own rules."""

    def load_for(spec, **_):
        require_same_encoder(spec, (encoder := TinyEncoder()).spec)
        return encoder

    monkeypatch.setattr(indexer.load, "load_encoder", lambda *_, **__: TinyEncoder())
    monkeypatch.setattr(service.search, "load_encoder_for", load_for)


def one_line(capsys) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("beside: ")
    assert err.count("\n") == 1
    return err


def test_index_search_info(tiny, tmp_path, capsys):
    images, index = tmp_path / "images", tmp_path / "index"
    paint_gallery(images, 30)
    (images / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (images / "empty.jpg").touch()

    assert run(["index", str(images), "--out", str(index), "--k", "16", "--strict"]) == 3
    out, err = capsys.readouterr()
    assert "30 images indexed (30 encoded" in out
    assert "2 unreadable" in out
    assert "broken.png" in err
    assert "empty.jpg" in err

    assert run(["index", str(images), "--out", str(index), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["indexed"], summary["encoded"], summary["reused"]) == (30, 0, 30)

    assert run(["search", str(index), QUERY, "-k", "5"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "ranked by: red square left of blue square (centroid, weight 1)"
    assert len(out.splitlines()) == 6
    assert err == ""

    assert run(["search", str(index), QUERY, "-k", "5", "--json", "--explain"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mode"] == "spatial"
    assert len(result["hits"]) == 5
    assert result["index"]["images"] == 30
    assert run(["search", str(index), QUERY, "-k", "5", "--json", "--mode", "native"]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "native"

    assert run(["info", str(index)]) == 0
    assert "30 indexed, 1 broken, 1 empty unreadable" in capsys.readouterr().out
    assert run(["info", str(index), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["encoder"]["name"] == "tiny"
    assert facts["images"] == 30


def test_verify(tiny, index_path, tmp_path, capsys):
    assert run(["verify", str(index_path)]) == 0
    assert "is sound: 60 images, 0 of their files gone, 16 embedded again" in capsys.readouterr().out
    assert run(["verify", str(index_path), "--no-embed", "--images", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["missing"], report["embedded"], report["problems"]) == (60, 0, [])
    broken = tmp_path / "broken"
    shutil.copytree(index_path, broken)
    sketch = next(broken.glob("sketch-*"))
    sketch.write_bytes(sketch.read_bytes()[:-1])
    for options in ([], ["--no-embed"]):
        assert run(["verify", str(broken), *options]) == 1
        assert "is damaged" in one_line(capsys)
    (broken / "manifest.json").write_text("{}")
    assert run(["verify", str(broken)]) == 1
    assert "is not a manifest" in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["search", "INDEX", ""], 2, "the query is empty"),
        (["search", "INDEX", "red", "-k", "0"], 2, "allowed are 1 to 1000"),
        (["search", "INDEX", "red", "-k", "ten"], 2, "'-k'"),
        (["search", "INDEX", "red", "--mode", "fast"], 2, "'auto', 'native'"),
        (["search", "OTHER", "red", "--where", "colour=red"], 2, "colour"),
        (["serve", "INDEX", "--texts", "fast"], 2, "'torch', 'onnx'"),
        (["search", "NOWHERE", "red"], 2, "is not an index"),
        (["search", "INDEX"], 2, "Missing argument 'TEXT'"),
        (["search", "OTHER", "red"], 1, "random:0"),
        (["search", "DAMAGED", "red"], 1, "is damaged"),
        (["info", "NOWHERE"], 2, "is not an index"),
        (["parse", "  "], 2, "the query is empty"),
        (["index", "NOWHERE", "--out", "OUT"], 2, "a folder of pictures"),
        (["index", "EMPTY", "--out", "OUT"], 2, "beside:"),
        (["index", "IMAGES"], 2, "Missing option '--out'"),
        (["verify", "NOWHERE"], 2, "is not an index"),
        (["serve", "NOWHERE"], 2, "is not an index"),
        (["fly"], 2, "No such command"),
        (["parse", "a", "--fast"], 2, "No such option"),
    ],
)
def test_wrong_use_is_one_line(tiny, tmp_path, index_path, gallery, capsys, arguments, status, says):
    places = {"INDEX": index_path, "IMAGES": gallery[0]}
    places |= {name: tmp_path / name.lower() for name in ("NOWHERE", "OTHER", "DAMAGED", "EMPTY", "OUT")}
    places["EMPTY"].mkdir()
    for name in ("OTHER", "DAMAGED"):
        places[name].mkdir()
        for file in index_path.iterdir():
            (places[name] / file.name).write_bytes(file.read_bytes())
    manifest = places["OTHER"] / "manifest.json"
    sha = read_manifest(index_path).encoder.weights_sha256
    text = manifest.read_text().replace(sha, "0" * 64).replace("random:0", "random:9")
    other = {name: value for name, value in json.loads(text).items() if name != "sha256"}
    manifest.write_text(json.dumps(other))
    native = next(places["DAMAGED"].glob("native-*"))
    native.write_bytes(native.read_bytes()[:-1] + b"?")

    assert run([str(places.get(a, a)) for a in arguments]) == status
    assert says in one_line(capsys)


def test_help_and_no_arguments(capsys):
    assert run([]) == 0
    assert "search" in capsys.readouterr().out
    for command in ("index", "search", "parse", "serve", "verify", "info"):
        assert run([command, "--help"]) == 0
        assert command in capsys.readouterr().out


def test_parse(capsys, monkeypatch):
    assert run(["parse", QUERY]) == 0
    assert capsys.readouterr().out == "red square [left_of] blue square\n"
    assert run(["parse", "a dog", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["relations"] == []
    lines = [QUERY, "", "\x00\u2028", "a clock above a door"]
    feed = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode() + b"\n\xff\n"))
    monkeypatch.setattr(sys, "stdin", feed)
    assert run(["parse", "-"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]]
    assert [len(a["relations"]) for a in answers] == [1, 0, 0, 1, 0]


def test_parse_loads_nothing_heavy():
    code = (
        "import sys, service.cli; service.cli.run(['parse', 'a cup left of a laptop']);"
        "print(*{'torch', 'numpy', 'faiss', 'pyarrow', 'PIL', 'fastapi', 'spacy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == ["cup [left_of] laptop", ""]


SERVE = """
import sys, service.search
from service.cli import run
from service.server import bind
from tests.support import TinyEncoder
def load(spec, **_):
    from indexer.encoder import require_same_encoder
    require_same_encoder(spec, TinyEncoder(int(sys.argv[1])).spec)
    return TinyEncoder()
service.search.load_encoder_for = load
sys.exit(run(sys.argv[2:]))
"""


def serve(index, seed=0, port=0) -> subprocess.Popen[str]:
    arguments = [
        sys.executable,
        "-c",
        SERVE,
        str(seed),
        "serve",
        str(index),
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"BESIDE_WORKERS": "1"},
    )


def test_serve_says_where_and_when_and_stops(index_path):
    server = serve(index_path)
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]
        assert httpx.get(f"{url}/livez").status_code == 200
        assert "60 images, tiny on cpu" in server.stdout.readline()
        tries = [server.stdout.readline() for _ in range(3)]
        assert all(httpx.get(line.split()[-1]).status_code == 200 for line in tries)
        assert httpx.get(f"{url}/v1/search", params={"q": QUERY}).json()["mode"] == "spatial"
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=20)
        assert (server.returncode, err) == (0, "")
    finally:
        server.kill()


def test_answers_are_not_held_back():
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY


def test_serve_refuses_another_encoder(index_path):
    server = serve(index_path, seed=3)
    out, err = server.communicate(timeout=60)
    assert server.returncode == 1
    assert "listens on" in out
    assert err.startswith("beside: this index was made with tiny (random:0), not with tiny (random:3)")
    assert err.count("\n") == 1


def test_serve_on_a_taken_port(index_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = serve(index_path, port=taken.getsockname()[1])
        out, err = server.communicate(timeout=60)
    assert (server.returncode, out) == (1, "")
    assert "is in use: choose another with --port" in err
    assert err.count("\n") == 1


def test_serve_with_a_wrong_environment(index_path, monkeypatch, capsys):
    monkeypatch.setenv("BESIDE_WORKERS", "many")
    assert run(["serve", str(index_path)]) == 2
    assert "BESIDE_WORKERS" in one_line(capsys)


def test_ctrl_c_while_loading(index_path):
    server = serve(index_path)
    server.stdout.readline()
    time.sleep(0.05)
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=20)
    assert server.returncode == 0
