"""The page in a real browser, against the real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from indexer.store import open_index
from parser import SAYINGS, QueryParser
from service.search import Searcher
from service.settings import Settings
from tests.service.conftest import Running
from tests.support import Placed, TinyEncoder, draw, index_folder, paint_gallery

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
QUERY = "a red square to the left of a blue square"
HOSTILE = '<img src=x onerror="document.title=1">&amp;.png'


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Running]:
    images = tmp_path_factory.mktemp("site")
    paint_gallery(images, 60)
    draw(Placed("red", 0, 3), Placed("blue", 6, 3)).save(images / HOSTILE)
    index = index_folder(images, tmp_path_factory.mktemp("site-index"))
    with Running(
        Settings(index=index.folder), lambda: Searcher(open_index(index.folder), TinyEncoder(), QueryParser())
    ) as running:
        yield running.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM.exists(), f"{CHROMIUM} is missing: apt-get install chromium, or set CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser, site) -> Iterator[Page]:
    """A fresh page that must neither complain nor ask anyone else."""
    context = browser.new_context(base_url=site.url, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: None if r.url.startswith((site.url, "data:")) else complaints.append(r.url))
    yield page
    context.close()
    assert not complaints


def ids(page: Page, wall: str = "#main-list") -> list[str]:
    return page.locator(f"{wall} .tile").evaluate_all("tiles => tiles.map(t => t.dataset.id)")


def api(site, **params) -> dict:
    return site.client.get("/v1/search", params={"q": QUERY, "k": 24} | params).json()


def test_from_the_box_to_the_pictures(page, site):
    page.goto("/")
    expect(page.locator("#facts")).to_contain_text("61 pictures")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    expect(page.locator(".tile")).to_have_count(24)
    spatial = api(site)
    assert ids(page) == [hit["id"] for hit in spatial["hits"]]
    expect(page.get_by_role("switch")).to_have_text("red square left of blue square")
    expect(page.get_by_role("switch")).to_have_attribute("aria-checked", "true")
    moved = next(hit for hit in spatial["hits"] if hit["native_rank"] > hit["rank"])
    expect(page.locator(f'.tile[data-id="{moved["id"]}"] .up')).to_have_text(
        f"↑ native {moved['native_rank']}"
    )
    page.locator(".shot img.there").first.wait_for()


def test_examples_lead_to_pictures(page):
    page.goto("/")
    expect(page.locator(".example")).to_have_count(3)
    expect(page.locator(".example .picto")).to_have_count(3)
    page.locator(".example").first.click()
    expect(page.locator(".tile")).to_have_count(24)
    page.get_by_role("link", name="Beside, start again").click()
    expect(page.locator(".tile")).to_have_count(0)
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_help_lists_what_the_server_says_can_be_said(page):
    page.goto("/")
    page.get_by_role("button", name="What can I say?").click()
    shown = page.locator("#help li")
    expect(shown).to_have_count(len(SAYINGS))
    expect(page.locator("#help-scored li")).to_have_count(sum(one.scored for one in SAYINGS))
    page.locator("#help").get_by_role("link", name=SAYINGS[0].example).click()
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#query")).to_have_value(SAYINGS[0].example)


def test_the_badge_switches_places_off(page, site):
    page.goto(f"/?q={QUERY}")
    expect(page.locator(".tile")).to_have_count(24)
    page.get_by_role("switch").click()
    expect(page.get_by_role("switch")).to_have_attribute("aria-checked", "false")
    expect(page.get_by_role("status")).to_contain_text("words alone")
    assert ids(page) == [hit["id"] for hit in api(site, mode="native")["hits"]]
    assert "view=native" in page.url
    page.go_back()
    expect(page.get_by_role("status")).to_contain_text("words and places")
    assert ids(page) == [hit["id"] for hit in api(site)["hits"]]


def test_side_by_side(page, site):
    page.goto(f"/?q={QUERY}")
    page.get_by_text("Side by side").click()
    expect(page.locator("#other-list .tile")).to_have_count(24)
    assert ids(page) == [hit["id"] for hit in api(site)["hits"]]
    native = api(site, mode="native")["hits"]
    assert ids(page, "#other-list") == [hit["id"] for hit in native]
    page.locator("#main-list .tile").first.hover()
    expect(page.locator("#main-list .tile.twin")).to_have_count(1)


def test_a_query_without_a_place(page):
    page.goto("/?q=something red")
    expect(page.locator(".tile")).to_have_count(24)
    expect(page.get_by_role("switch")).to_be_hidden()
    expect(page.locator("#unread")).to_contain_text("No place was named")
    expect(page.locator(".move")).to_have_count(0)


def test_warnings_are_shown_and_depth_can_be_asked_for(page):
    page.goto("/?q=a red square behind a blue square")
    expect(page.locator(".warnings li")).to_contain_text("depth")
    page.get_by_role("button", name="Let height in the picture stand for depth").click()
    expect(page.get_by_role("switch")).to_contain_text("red square behind blue square")
    page.locator(".shot").first.click()
    expect(page.locator("#box-proxy")).to_be_visible()


def test_why_is_it_here(page, site):
    page.goto(f"/?q={QUERY}")
    page.locator(".shot").nth(1).focus()
    page.keyboard.press("Enter")
    box = page.get_by_role("dialog")
    hits = api(site)["hits"]
    expect(box).to_contain_text(f"Rank 2, by words alone {hits[1]['native_rank']}")
    expect(box.locator("tr.native td")).to_have_text(f"{hits[1]['native_score']:.4f}")
    expect(box.locator("tr.spatial td")).to_have_text(f"{hits[1]['spatial_score']:+.4f}")
    expect(box.locator("tr.sum td")).to_have_text(f"{hits[1]['score']:.4f}")
    page.keyboard.press("ArrowLeft")
    expect(box.get_by_role("heading", level=2)).to_have_text(hits[0]["path"])
    expect(box.get_by_role("button", name="Picture before")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(page.locator(".shot").nth(1)).to_be_focused()


def test_more_pictures_until_the_end(page):
    page.goto(f"/?q={QUERY}")
    for count in (48, 61):
        page.get_by_role("button", name="Show more").click()
        expect(page.locator(".tile")).to_have_count(count)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    assert len(set(ids(page))) == 61


def test_more_of_one_search_does_not_show_in_the_next(page, site):
    page.goto(f"/?q={QUERY}")
    expect(page.locator(".tile")).to_have_count(24)
    held = []
    page.route(
        "**/v1/search",
        lambda route: held.append(route) if "cursor" in route.request.post_data else route.continue_(),
    )
    with page.expect_request("**/v1/search"):
        page.get_by_role("button", name="Show more").click()
    page.locator("#query").fill("a yellow thing")
    page.keyboard.press("Enter")
    wanted = [hit["id"] for hit in api(site, q="a yellow thing")["hits"]]
    expect(page.locator(f'.tile[data-id="{wanted[0]}"] .rank')).to_have_text("1")
    for route in held:
        route.continue_()
    expect(page.get_by_role("button", name="Show more")).to_be_enabled()
    page.wait_for_timeout(200)
    assert ids(page) == wanted


def test_names_and_queries_stay_text(page):
    page.goto(f"/?q={QUERY}")
    place = page.locator(f".shot[aria-label*='{HOSTILE[:8]}']")
    place.first.click()
    expect(page.locator("#box-name")).to_have_text(HOSTILE)
    page.keyboard.press("Escape")
    page.get_by_role("searchbox").fill('<b id="bad">red</b> left of <i>blue</i>')
    page.keyboard.press("Enter")
    expect(page.locator(".tile")).to_have_count(24)
    assert page.locator("#bad").count() == 0


def test_a_refused_query_is_explained(browser, site):
    page = browser.new_page(base_url=site.url)
    page.goto("/?q=%E2%80%8B")
    expect(page.get_by_role("status")).to_contain_text("The query is empty")
    page.close()


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("path", ["/", f"/?q={QUERY}", f"/?q={QUERY}&view=split", "/docs"])
def test_nothing_sticks_out(page, path, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(path)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/?q={QUERY}")
    expect(page.locator(".tile")).to_have_count(24)
    contrast = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
          const light = (colour) => {
            canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const style = getComputedStyle(document.documentElement);
          const value = (name) => style.getPropertyValue(name).trim();
          const ratio = (a, b) => {
            const [x, y] = [light(value(a)), light(value(b))].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05);
          };
          return [["--ink", "--paper"], ["--soft", "--paper"], ["--accent", "--paper"], ["--soft", "--card"],
                  ["--accent", "--accent-soft"], ["--note-ink", "--note"], ["--soft", "--tile"]]
            .map(([a, b]) => [`${a} on ${b}`, ratio(a, b)]);
        }"""
    )
    assert {name: round(ratio, 2) for name, ratio in contrast if ratio < 4.5} == {}


def test_the_docs_draw_the_interface(page):
    page.goto("/docs")
    expect(page.locator("#operations article").first).to_contain_text("/v1/search")
    page.get_by_role("button", name="Ask").first.click()
    expect(page.locator("pre").first).to_contain_text("200 OK")
    expect(page.locator("#sayings")).to_contain_text("to the left of")
