"""`visit_webpage` and the search by SearXNG against real HTTP servers."""

import gzip
import json
import re
import threading
import zlib
from collections.abc import Iterator

import pytest

from cadre.adapters.addresses import read_networks
from cadre_standard_tools.fetching import MAX_PAGE_BYTES, MAX_REDIRECTS, Fetcher, PageUnavailable
from cadre_standard_tools.searching import Hit, SearchUnavailable, Searxng
from cadre_standard_tools.visiting import MAX_CHARACTERS, page_text
from integration.web_server import Answer, WebServer, web_server

HERE = read_networks("CADRE_VISIT_PRIVATE", "127.0.0.1/32")
"""That machine and no other."""


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


async def visit(url: str, fetcher: Fetcher | None = None) -> str:
    """As the tool does, on this machine."""
    return page_text(url, await (fetcher or Fetcher(HERE)).fetch(url))


# --- what is read


async def test_html_comes_as_markdown(web: WebServer) -> None:
    web.pages["/page"] = Answer(b"<title>T</title><h1>Stars</h1><p>See <a href='/sun'>the Sun</a>.</p>")
    assert await visit(f"{web.url}/page") == f"# Stars\n\nSee [the Sun]({web.url}/sun)."
    assert web.asked == [("/page", f"127.0.0.1:{web.port}")]


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=latin-1", "Größe <b>".encode("latin-1"), "Größe <b>"),
        ("text/plain; charset=klingon", "Größe".encode(), "Größe"),
        ("application/json", b'{"a": [1]}', '{"a": [1]}'),
        ("application/problem+json", b"{}", "{}"),
        ("application/x-ndjson", b"{}\n{}", "{}\n{}"),
        ("application/rss+xml; charset=utf-8", b"<rss/>", "<rss/>"),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("application/x-yaml", b"a: 1", "a: 1"),
    ],
)
async def test_text_comes_as_it_is(web: WebServer, content_type: str, body: bytes, text: str) -> None:
    web.pages["/"] = Answer(body, content_type)
    assert await visit(web.url) == text


@pytest.mark.parametrize("content_type", ["application/pdf", "image/png", ""])
async def test_what_is_no_text_is_refused(web: WebServer, content_type: str) -> None:
    web.pages["/"] = Answer(b"%PDF", content_type)
    with pytest.raises(PageUnavailable, match=r"HTML.*XML"):
        await visit(web.url)


async def test_an_error_is_told(web: WebServer) -> None:
    with pytest.raises(PageUnavailable, match="/none answers 404 Not Found"):
        await visit(f"{web.url}/none")


# --- how much


async def test_an_empty_page_is_a_note_that_says_so(web: WebServer) -> None:
    web.pages["/"] = Answer(b"", "text/html")
    assert re.fullmatch(r"\[.+\]", await visit(web.url))


async def test_a_long_page_is_cut(web: WebServer) -> None:
    web.pages["/"] = Answer(b"x" * (MAX_CHARACTERS + 7), "text/plain")
    text = await visit(web.url)
    shown, _, note = text.partition("\n\n")
    assert shown == "x" * MAX_CHARACTERS
    assert "7" in note


async def test_an_endless_page_is_not_read_to_its_end(web: WebServer) -> None:
    web.pages["/"] = Answer(b"x" * (50 * MAX_PAGE_BYTES), "text/plain")
    page = await Fetcher(HERE).fetch(web.url)
    assert (len(page.data), page.is_whole) == (MAX_PAGE_BYTES, False)
    assert "at least" in page_text(web.url, page)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_packed_page_is_unpacked_but_no_bomb_is(web: WebServer, encoding: str, pack: object) -> None:
    assert callable(pack)
    web.pages["/"] = Answer(pack(b"small"), "text/plain", headers={"Content-Encoding": encoding})
    assert await visit(web.url) == "small"
    web.pages["/"] = Answer(pack(bytes(200_000_000)), "text/plain", headers={"Content-Encoding": encoding})
    page = await Fetcher(HERE).fetch(web.url)
    assert (len(page.data), page.is_whole) == (MAX_PAGE_BYTES, False)


@pytest.mark.parametrize(
    ("members", "length", "is_whole"),
    [
        ([b"first ", b"", b"second"], 12, True),
        ([bytes(MAX_PAGE_BYTES), b"second"], MAX_PAGE_BYTES, False),
        ([bytes(MAX_PAGE_BYTES - 3), b"second"], MAX_PAGE_BYTES, False),
        ([b"x"] * 5000, 100, False),
    ],
)
async def test_a_page_packed_in_several_parts_is_read_on(
    web: WebServer, members: list[bytes], length: int, is_whole: bool
) -> None:
    packed = b"".join(map(gzip.compress, members)) + bytes(8)
    web.pages["/"] = Answer(packed, "text/plain", headers={"Content-Encoding": "gzip"})
    page = await Fetcher(HERE).fetch(web.url)
    assert page.data == b"".join(members)[:length]
    assert page.is_whole == is_whole


@pytest.mark.parametrize(("encoding", "why"), [("gzip", "Error -3"), ("br", "'br'")])
async def test_what_cannot_be_unpacked_is_told(web: WebServer, encoding: str, why: str) -> None:
    web.pages["/"] = Answer(b"not packed at all", headers={"Content-Encoding": encoding})
    with pytest.raises(PageUnavailable, match=why):
        await visit(web.url)


async def test_a_slow_page_is_given_up(web: WebServer) -> None:
    over = threading.Event()
    web.pages["/"] = Answer(b"late", until=over)
    with pytest.raises(PageUnavailable, match=r"0\.5"):
        await visit(web.url, Fetcher(HERE, within=0.5))
    over.set()


# --- from where


async def test_redirects_are_followed_and_told(web: WebServer) -> None:
    web.pages["/old"] = Answer(status=302, headers={"Location": "/new?a=b"})
    web.pages["/new"] = Answer(b"found", "text/plain")
    assert await visit(f"{web.url}/old") == f"[Redirected to {web.url}/new?a=b]\n\nfound"


async def test_redirects_come_to_an_end(web: WebServer) -> None:
    web.pages["/"] = Answer(status=301, headers={"Location": "/"})
    with pytest.raises(PageUnavailable, match="redirects"):
        await visit(web.url)
    assert len(web.asked) == MAX_REDIRECTS + 1


async def test_this_machine_is_refused_unless_allowed(web: WebServer) -> None:
    for url in (web.url, f"http://localhost:{web.port}", f"http://[::ffff:127.0.0.1]:{web.port}"):
        with pytest.raises(PageUnavailable, match="public internet"):
            await visit(url, Fetcher(()))
    assert web.asked == []


async def test_a_redirect_to_a_private_address_is_refused(web: WebServer) -> None:
    with web_server("127.0.0.2") as inner:
        inner.pages["/"] = Answer(b"secret", "text/plain")
        for target in (inner.url, f"//127.0.0.2:{inner.port}/", "http://169.254.169.254/latest/meta-data"):
            web.pages["/"] = Answer(status=307, headers={"Location": target})
            with pytest.raises(PageUnavailable, match="public internet"):
                await visit(web.url)
        assert inner.asked == []
        everywhere = Fetcher(read_networks("CADRE_VISIT_PRIVATE", "1"))
        assert "secret" in await visit(inner.url, everywhere)


async def test_the_address_that_was_checked_is_the_one_connected_to(web: WebServer) -> None:
    """A name that is somewhere else when asked for again (rebinding) gains nothing."""
    resolved: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.1"] if len(resolved) == 1 else ["127.0.0.2"]

    with web_server("127.0.0.2") as inner:
        web.pages["/"] = Answer(b"public", "text/plain")
        url = f"http://rebinding.example:{web.port}/"
        assert await visit(url, Fetcher(HERE, resolve)) == "public"
        assert inner.asked == []
    assert resolved == ["rebinding.example"]
    assert web.asked == [("/", f"rebinding.example:{web.port}")]


async def test_the_next_address_is_tried_when_one_does_not_answer(web: WebServer) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.1"]

    web.pages["/"] = Answer(b"here", "text/plain")
    fetcher = Fetcher(read_networks("CADRE_VISIT_PRIVATE", "127.0.0.0/8"), resolve)
    assert await visit(f"http://two.example:{web.port}/", fetcher) == "here"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "example.com",
        "http://",
        "http://[",
        "http://127.0.0.1:99999/",
        "",
    ],
)
async def test_what_is_no_address_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(PageUnavailable, match="cannot be visited"):
        await visit(url)


async def test_a_server_that_is_not_there_is_told() -> None:
    with web_server() as gone:
        url = gone.url
    with pytest.raises(PageUnavailable, match="cannot be read"):
        await visit(url)


# --- SearXNG


async def test_searxng_is_asked_for_json(web: WebServer) -> None:
    web.pages["/search"] = Answer(
        json.dumps(
            {
                "query": "stars",
                "results": [
                    {"url": "https://a.example", "title": "A", "content": "About A", "score": 1.5},
                    {"url": "https://b.example", "title": None, "content": None},
                    {"url": "https://c.example", "title": "C"},
                ],
            }
        ).encode(),
        "application/json",
    )
    found = await Searxng(f"{web.url}/").search("big stars & more", 2)
    assert found.results == [
        Hit("A", "https://a.example", "About A"),
        Hit("https://b.example", "https://b.example", ""),
    ]
    assert web.asked[0].path == "/search?q=big+stars+%26+more&format=json"


async def test_nothing_found_is_said(web: WebServer) -> None:
    answer = {"results": [], "unresponsive_engines": [["brave", "timeout"]]}
    web.pages["/search"] = Answer(json.dumps(answer).encode(), "application/json")
    found = await Searxng(web.url).search("xyzzy", 5)
    assert found.results == []
    assert "'xyzzy'" in found.note
    assert "1" in found.note


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(status=403), "format json"),
        (Answer(status=429), "answers 429"),
        (Answer(b"<html>"), "SearXNG"),
    ],
)
async def test_a_search_server_in_trouble_is_told(web: WebServer, answer: Answer, problem: str) -> None:
    web.pages["/search"] = answer
    with pytest.raises(SearchUnavailable, match=problem):
        await Searxng(web.url).search("a", 5)
    with web_server() as gone:
        url = gone.url
    with pytest.raises(SearchUnavailable, match="does not answer"):
        await Searxng(url).search("a", 5)
