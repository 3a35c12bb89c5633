from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from indexer.build import build_index
from indexer.store import open_index
from parser import QueryParser
from service.errors import InexactDevice, NoDevice, SearchError
from service.problems import slug
from service.query import Mode
from service.schemas import BatchAnswer, ParsedModel, PictureModel, Problem, SearchAnswer, SearchBody
from service.search import Searcher
from service.settings import Settings
from tests.service.conftest import Running
from tests.support import Placed, TinyEncoder, draw, index_folder, paint_gallery

SPATIAL = "a red square to the left of a blue square"
PLAIN = "a photo of a blue thing"
PROBLEM = "application/problem+json"


def problem(response, status: int) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    Problem.model_validate(body)
    assert body["status"] == status
    assert body["detail"]
    assert "Traceback" not in response.text
    return body


@pytest.fixture
def direct(index_path) -> Searcher:
    return Searcher(open_index(index_path), TinyEncoder(), QueryParser())


@pytest.mark.parametrize("query", [SPATIAL, PLAIN])
def test_a_search_is_what_the_searcher_says(client, direct, query):
    expected = json.loads(json.dumps(direct.search(query, k=60, explain=True).to_dict()))
    for response in (
        client.get("/v1/search", params={"q": query, "k": 60, "explain": True}),
        client.post("/v1/search", json={"query": query, "k": 60, "explain": True}),
    ):
        assert response.status_code == 200
        body = response.json()
        SearchAnswer.model_validate(body)
        assert body["frame"] == "viewer"
        assert body.pop("index")["images"] == 60
        assert set(body.pop("took_ms")) == {"parse", "encode", "scan", "rerank", "native_rank", "total"}
        assert body == {k: v for k, v in expected.items() if k != "took_ms"}


def test_scores_arrive_to_the_last_bit(client, direct):
    body = client.get("/v1/search", params={"q": SPATIAL, "k": 60}).json()
    for values, hit in zip(body["hits"], direct.search(SPATIAL, k=60).hits, strict=True):
        for name in ("score", "native_score", "spatial_score"):
            assert np.float32(values[name]).tobytes() == np.float32(getattr(hit, name)).tobytes()


def test_no_relation_is_native_over_http(client):
    queries = [PLAIN, "red", "yellow and green", "nothing at all", "a cat"]
    batch = client.post(
        "/v1/search/batch",
        json={"queries": [{"q": q, "mode": m, "k": 60} for q in queries for m in ("auto", "native")]},
    ).json()["results"]
    for i, query in enumerate(queries):
        alone = [client.get("/v1/search", params={"q": query, "k": 60, "mode": m}).json() for m in Mode]
        hits = [one["hits"] for one in (*alone, batch[2 * i], batch[2 * i + 1])]
        assert all(h == hits[0] for h in hits)
        assert {one["mode"] for one in alone} == {"native"}


def test_pages_make_the_whole(client):
    whole = client.get("/v1/search", params={"q": SPATIAL, "k": 60}).json()["hits"]
    pages, cursor = [], None
    while True:
        params = {"q": SPATIAL, "k": 7} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/search", params=params).json()
        pages += page["hits"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == whole
    assert client.get("/v1/search", params={"q": SPATIAL, "offset": 10**6}).json()["hits"] == []
    stale = client.get("/v1/search", params={"q": PLAIN, "cursor": page["next_cursor"] or "7." + "0" * 16})
    assert problem(stale, 422)["field"] == "cursor"


def test_a_batch_answers_item_by_item(client):
    items = [SPATIAL, "", {"q": PLAIN, "k": 3}, {"q": "red", "k": 0}, {"q": "red", "kk": 1}, 7, {"k": 3}]
    body = client.post("/v1/search/batch", json={"queries": items}).json()
    BatchAnswer.model_validate(body)
    results = body["results"]
    assert [("error" in one) for one in results] == [False, True, False, True, True, True, True]
    assert len(results[2]["hits"]) == 3
    assert [one["error"]["field"] for one in results if "error" in one][:3] == ["query", "k", "kk"]
    assert all(one["error"]["status"] == 422 for one in results if "error" in one)
    for queries in ([], ["a"] * 257):
        refused = problem(client.post("/v1/search/batch", json={"queries": queries}), 422)
        assert (refused["field"], refused["allowed"]) == ("queries", {"minimum": 1, "maximum": 256})
    odd = b'{"queries": ["red", {"query": 5}, {"q": "red", "where": ["format=\\ud800"]}]}'
    results = client.post(
        "/v1/search/batch", content=odd, headers={"content-type": "application/json"}
    ).json()
    assert [one.get("error", {}).get("field") for one in results["results"]] == [None, "query", "where"]
    refused = problem(client.post("/v1/search/batch", json={"queries": ["red"], "k": 3}), 422)
    assert refused["allowed"] == ["queries"]


@pytest.mark.parametrize(
    ("params", "field", "allowed"),
    [
        ({}, "query", None),
        ({"q": ""}, "query", None),
        ({"q": " \t"}, "query", None),
        ({"q": "a", "query": "b"}, "query", None),
        ({"q": "red", "k": 0}, "k", {"minimum": 1, "maximum": 1000}),
        ({"q": "red", "k": -1}, "k", {"minimum": 1, "maximum": 1000}),
        ({"q": "red", "k": 10**9}, "k", {"minimum": 1, "maximum": 1000}),
        ({"q": "red", "k": "ten"}, "k", {"minimum": 1, "maximum": 1000}),
        ({"q": "red", "offset": -1}, "offset", {"minimum": 0, "maximum": 10**9}),
        ({"q": "red", "mode": "fast"}, "mode", ["auto", "native"]),
        ({"q": "red", "weight": "nan"}, "weight", {"minimum": 0.0, "maximum": 100.0}),
        ({"q": "red", "weight": -2}, "weight", {"minimum": 0.0, "maximum": 100.0}),
        ({"q": "red", "min_score": "nan"}, "min_score", {"minimum": -1000.0, "maximum": 1000.0}),
        ({"q": "red", "min_score": "inf"}, "min_score", {"minimum": -1000.0, "maximum": 1000.0}),
        ({"q": "red", "cursor": "x"}, "cursor", None),
        ({"q": "red", "limit": 3}, "limit", [*SearchBody.model_fields]),
        ({"q": "red", "depth": "maybe"}, "depth", [False, True]),
        ({"q": "red", "where": ["format=PNG"] * 17}, "where", {"minimum": 0, "maximum": 16}),
    ],
)
def test_bad_values_name_the_field(client, params, field, allowed):
    body = problem(client.get("/v1/search", params=params), 422)
    assert body["field"] == field
    if allowed is not None:
        assert body["allowed"] == allowed


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"\xff\xfe", "body"),
        (b"null", "body"),
        (b'"red"', "body"),
        (b'{"q": 5}', "q"),
        (b'{"query": 5}', "query"),
        (b'{"query": "red", "body": 1}', "body"),
        (b'{"q": "\xff"}', "body"),
        (b"[" * 100_000, "body"),
    ],
    ids=lambda value: ascii(value[:12]),
)
def test_bad_bodies(client, content, field):
    headers = {"content-type": "application/json"}
    assert problem(client.post("/v1/search", content=content, headers=headers), 422)["field"] == field


def test_bodies_beyond_use_are_refused(client):
    body = problem(client.post("/v1/search", content=b"x" * (5 << 20)), 413)
    assert body["allowed"]["maximum"] < 5 << 20

    def chunks():
        for _ in range(50):
            yield b" " * (100 << 10)

    with contextlib.suppress(httpx.TransportError):  # the server may hang up while we still send
        assert problem(client.post("/v1/search", content=chunks()), 413)["type"] == "/docs#body-too-large"
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "\U0001f415 to the left of \U0001f6b2",
        "狗在自行车左边",
        "a\x00b\x1b[31m",
        "\u202e red",
        "<script>alert(1)</script>",
        "%00%0a",
        "left of left of left of",
        "x" * 10_000,
        "🐕" * 10_000,
        "red left of " * 800,
        "\x00",
        "\u200b",
        "x" * 30_000,
    ],
    ids=lambda q: ascii(q[:12]),
)
def test_odd_queries_get_an_answer_or_a_problem(client, server, query):
    for path in ("/v1/search", "/v1/parse"):
        status, kind = get_anything(server, f"{path}?q={quote(query)}")
        assert status in {200, 422}
        assert kind == ("application/json" if status == 200 else PROBLEM)
    response = client.post("/v1/search", json={"q": query})
    assert response.status_code == status
    if status == 422:
        problem(response, 422)


def get_anything(server, path: str) -> tuple[int, str | None]:
    """GET without a client's own idea of what an address may be."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("content-type")


def test_half_a_character_is_no_failure(client):
    response = client.post(
        "/v1/search", content=b'{"q": "red \\ud800"}', headers={"content-type": "application/json"}
    )
    assert response.status_code == 200
    assert response.json()["query"] == "red \ufffd"


def test_every_error_is_a_problem(client):
    problem(client.get("/nowhere"), 404)
    problem(client.get("/v1/nowhere/<b>"), 404)
    assert client.delete("/v1/search").headers["allow"] == "GET, HEAD, POST"
    assert client.post("/livez").headers["allow"] == "GET, HEAD"
    problem(client.delete("/v1/search"), 405)
    problem(client.get("/static/nothing.js"), 404)
    problem(client.get("/static/..%2fapp.py"), 404)


@pytest.mark.parametrize(
    "path", ["/", "/livez", "/v1/search?q=red", "/v1/search?q=", "/static/app.js", "/nowhere"]
)
def test_head_is_get_without_a_body(client, path):
    got, asked = client.get(path), client.head(path)
    assert asked.status_code == got.status_code
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert asked.content == b""


def test_every_problem_is_described(client):
    described = set(re.findall(r'<tr id="([^"]+)"', client.get("/docs").text))
    kinds = [kind for kind in SearchError.__subclasses__() if kind not in (NoDevice, InexactDevice)]
    assert {slug(kind) for kind in kinds} == described


def test_parse_relations_and_info(client):
    parsed = client.get("/v1/parse", params={"query": SPATIAL}).json()
    assert parsed.pop("frame") == "viewer"
    ParsedModel.model_validate(parsed)
    assert parsed["relations"] == [{"subject": "red square", "relation": "left_of", "object": "blue square"}]
    problem(client.get("/v1/parse"), 422)
    names = {one["name"] for one in client.get("/v1/relations").json()["relations"]}
    assert {"left_of", "above", "at_top_left"} <= names
    client.get("/v1/search", params={"q": "red"})
    info = client.get("/v1/info").json()
    assert info["engine"] == {"device": "cpu", "texts": "torch"}
    assert info["index"]["images"] == 60
    assert info["index"]["encoder"]["name"] == "tiny"
    assert info["text_cache"]["misses"] > 0


def test_depth_says_proxy(client):
    body = client.get("/v1/search", params={"q": "red behind blue", "depth": True}).json()
    assert body["mode"] == "spatial"
    assert body["relations"][0]["proxy"] is True
    without = client.get("/v1/search", params={"q": "red behind blue"}).json()
    assert without["mode"] == "native"
    assert without["relations"] == []
    assert without["warnings"]


def test_pictures(client, gallery):
    hit = client.get("/v1/search", params={"q": "red"}).json()["hits"][0]
    facts = client.get(f"/v1/images/{hit['id']}").json()
    PictureModel.model_validate(facts)
    assert facts["path"] == hit["path"]
    whole = client.get(facts["file"])
    assert whole.headers["content-type"] == "image/png"
    assert whole.content == (gallery[0] / hit["path"]).read_bytes()
    assert client.get(facts["file"], headers={"range": "bytes=0-3"}).content == whole.content[:4]
    thumb = client.get(facts["thumb"], params={"side": 160})
    assert thumb.headers["content-type"] == "image/jpeg"
    assert max(Image.open(BytesIO(thumb.content)).size) <= 160
    again = client.get(facts["thumb"], params={"side": 160}, headers={"if-none-match": thumb.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert problem(client.get(facts["thumb"], params={"side": 161}), 422)["allowed"] == [160, 320, 640, 1280]


def test_pictures_in_a_tar_file(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    paint_gallery(images, 2)
    content = (images / "0001.png").read_bytes()
    with tarfile.open(images / "shard.tar", "w") as archive:
        archive.add(images / "0001.png", "one.png")
    out = tmp_path / "index"
    build_index(images, out, TinyEncoder(), workers=0)
    with Running(
        Settings(index=out), lambda: Searcher(open_index(out), TinyEncoder(), QueryParser())
    ) as running:
        client = running.wait().client
        hits = client.get("/v1/search?q=red").json()["hits"]
        (inside,) = (hit["id"] for hit in hits if hit["path"] == "shard.tar/one.png")
        file = client.get(f"/v1/images/{inside}/file")
        assert (file.status_code, file.headers["content-type"], file.content) == (200, "image/png", content)
        assert client.get(f"/v1/images/{inside}/thumb").headers["content-type"] == "image/jpeg"
        (images / "shard.tar").write_bytes(b"")
        for tail in ("file", "thumb"):
            problem(client.get(f"/v1/images/{inside}/{tail}"), 410)


@pytest.mark.parametrize(
    "image_id",
    [
        "0000000000000000",
        "ffffffffffffffff",
        "0000.png",
        "..%2f..%2fetc%2fpasswd",
        "../../etc/passwd",
        "%2e%2e%2f0000.png",
        "0000000000000000%00",
        "x" * 5000,
        "-1",
        "%00",
        "0x00000000000001",
    ],
)
def test_path_tricks_lead_nowhere(client, image_id):
    for tail in ("", "/file", "/thumb"):
        problem(client.get(f"/v1/images/{image_id}{tail}"), 404)


def test_a_picture_that_is_gone(index_path, gallery, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(gallery[0], images)
    opened = Searcher(open_index(index_path), TinyEncoder(), QueryParser(), images=images)
    with Running(Settings(index=index_path), lambda: opened) as running:
        hits = running.wait().client.get("/v1/search", params={"q": "red"}).json()["hits"]
        (images / hits[0]["path"]).unlink()
        (images / hits[1]["path"]).write_bytes(b"no picture")
        for hit in hits[:2]:
            for tail in ("file", "thumb"):
                body = problem(running.client.get(f"/v1/images/{hit['id']}/{tail}"), 410)
                assert str(tmp_path) not in json.dumps(body)
        assert running.client.get(f"/v1/images/{hits[2]['id']}/file").status_code == 200


def test_while_the_index_is_opened(index_path):
    go = threading.Event()

    def slowly() -> Searcher:
        go.wait(20)
        return Searcher(open_index(index_path), TinyEncoder(), QueryParser())

    with Running(Settings(index=index_path), slowly) as running:
        assert running.client.get("/livez").status_code == 200
        assert "being opened" in problem(running.client.get("/readyz"), 503)["detail"]
        for path in ("/v1/search?q=red", "/v1/info", "/v1/parse?q=a", "/v1/images/0000000000000000"):
            response = running.client.get(path)
            problem(response, 503)
            assert int(response.headers["retry-after"]) > 0
        go.set()
        running.wait()
        assert running.client.get("/v1/search?q=red").status_code == 200


def test_an_index_that_cannot_be_opened(tmp_path):
    with Running(Settings(index=tmp_path), lambda: Searcher.open(tmp_path)) as running:
        for _ in range(200):
            body = problem(running.client.get("/readyz"), 503)
            if "could not" in body["detail"]:
                break
            time.sleep(0.02)
        assert "is not an index" in body["detail"]


class Slow(TinyEncoder):
    """An encoder that takes its time, and breaks on request."""

    def encode_texts(self, texts):
        if "break" in texts:
            raise RuntimeError("a secret of the inside")
        time.sleep(0.4)
        return super().encode_texts(texts)


@pytest.fixture(scope="module")
def slow_server(index_path):
    with Running(
        Settings(index=index_path, workers=2, queue=3),
        lambda: Searcher(open_index(index_path), Slow(), QueryParser()),
    ) as running:
        yield running.wait()


def test_livez_answers_during_a_long_encode(slow_server):
    with ThreadPoolExecutor(2) as pool:
        searches = [pool.submit(slow_server.client.get, f"/v1/search?q=word{i}") for i in range(2)]
        time.sleep(0.05)
        waits = []
        for _ in range(10):
            began = time.perf_counter()
            assert slow_server.client.get("/livez").status_code == 200
            waits.append(time.perf_counter() - began)
        assert all(s.result().status_code == 200 for s in searches)
    assert sorted(waits)[5] < 0.05


def test_a_burst_is_told_to_come_back(slow_server):
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: slow_server.client.get(f"/v1/search?q=burst{i}"), range(16)))
    assert {a.status_code for a in answers} == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            problem(answer, 429)
            assert int(answer.headers["retry-after"]) > 0
    assert slow_server.client.get("/v1/search?q=burst0").status_code == 200


def test_one_broken_request_does_not_stop_the_others(slow_server):
    with ThreadPoolExecutor(3) as pool:
        broken = pool.submit(slow_server.client.get, "/v1/search?q=break")
        good = pool.submit(slow_server.client.get, "/v1/search?q=good")
        body = problem(broken.result(), 500)
        assert broken.result().headers["x-content-type-options"] == "nosniff"
        assert "secret" not in json.dumps(body)
        assert good.result().status_code == 200
    assert slow_server.client.get("/readyz").status_code == 200


def test_the_interface_describes_itself(client):
    schema = client.get("/openapi.json").json()
    assert {"/v1/search", "/v1/search/batch", "/v1/parse", "/v1/images/{image_id}/thumb", "/livez"} <= set(
        schema["paths"]
    )
    defined = set(schema["components"]["schemas"])
    used = set(
        TypeAdapter(list[str]).validate_python(
            [part.split('"')[0] for part in json.dumps(schema).split("#/components/schemas/")[1:]]
        )
    )
    assert used <= defined
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert PROBLEM in operation["responses"]["default"]["content"], path


def test_pages_come_from_here_alone(client):
    for path in ("/", "/docs"):
        response = client.get(path)
        assert response.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "http://" not in response.text.replace("http://www.w3.org", "")
        assert "https://" not in response.text


def test_a_finished_rebuild_is_served_without_a_failed_request(tmp_path):
    pictures, folder = tmp_path / "pictures", tmp_path / "index"
    paint_gallery(pictures, 12)
    index_folder(pictures, folder)
    settings = Settings(index=folder, reload_seconds=0.05, queue=64)
    with Running(settings, lambda: Searcher(open_index(folder), TinyEncoder(), QueryParser())) as running:
        running.wait()
        stop, answers = threading.Event(), []

        def ask() -> None:
            with httpx.Client(base_url=running.url, timeout=30) as client:
                while not stop.is_set():
                    answers.append(client.get("/v1/search?q=red left of blue&k=30"))

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        draw(Placed("red", 0, 1), Placed("blue", 4, 1)).save(pictures / "new.png")
        index_folder(pictures, folder)
        wait_for(lambda: running.client.get("/v1/search?q=red").json()["total"] == 13)
        manifest = folder / "manifest.json"
        kept = manifest.read_text()
        manifest.write_text("{")
        time.sleep(0.3)
        assert running.client.get("/v1/search?q=red").json()["total"] == 13  # the old one is served on
        manifest.write_text(kept)
        (pictures / "new.png").unlink()
        index_folder(pictures, folder)
        wait_for(lambda: running.client.get("/v1/search?q=red").json()["total"] == 12)
        stop.set()
        for asker in askers:
            asker.join()
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["total"] for answer in answers} == {12, 13}


def wait_for(done) -> None:
    for _ in range(400):
        if done():
            return
        time.sleep(0.025)
    raise AssertionError("never")


def test_conditions_may_be_repeated_and_are_refused_by_name(client):
    answer = client.get("/v1/search?q=red&where=width>100&where=format=PNG&k=3").json()
    assert len(answer["hits"]) == 3
    assert client.get("/v1/search?q=red&where=width<100").json()["total"] == 0
    assert client.post("/v1/search", json={"q": "red", "where": ["format=PNG"]}).json()["total"] == 60
    body = problem(client.get("/v1/search?q=red&where=lens=50"), 422)
    assert body["field"] == "where"
    assert "width" in body["allowed"]
