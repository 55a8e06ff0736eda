"""HTML as a model reads it."""

import time

import pytest

from cadre_standard_tools.visiting import to_markdown

HERE = "http://host.example/a/b.html"

PAGE = b"""<!doctype html><html><head><title> The
 page </title><style>p {color: red}</style></head><body>
<script>alert("no")</script><nav><a href="/home">Home</a> <a href="javascript:go()">Go</a></nav>
<h2>Stars_and *more*</h2><p>One <b>bold</b> word, <a href="c.html">a link</a>.</p>
<ul><li>first</li><li>second</li></ul>
<table><tr><th>name</th><th>size</th></tr><tr><td>Sun</td><td>big</td></tr></table>
<pre><code>x = 1
y = 2</code></pre><img src="data:image/png;base64,AAAA" alt="dot"><img src="/i.png" alt="eye">
</body></html>"""


def test_a_page_keeps_what_can_be_read() -> None:
    text = to_markdown(PAGE, HERE)
    assert text.startswith("# The page\n")
    assert "## Stars_and *more*" in text
    assert "One **bold** word, [a link](http://host.example/a/c.html)." in text
    assert "[Home](http://host.example/home) Go" in text
    assert "* first\n* second" in text
    assert "| Sun | big |" in text
    assert "```\nx = 1\ny = 2\n```" in text
    assert "![eye](http://host.example/i.png)" in text
    for unreadable in ("alert", "color", "javascript", "base64", "\n\n\n"):
        assert unreadable not in text


def test_links_are_completed_as_the_page_says() -> None:
    html = b'<base href="http://other.example/x/"><a href="y">z</a><a href="http://[bad">w</a>'
    assert to_markdown(html, HERE) == "[z](http://other.example/x/y)w"


@pytest.mark.parametrize(
    ("html", "charset"),
    [
        ("<p>Größe</p>".encode("latin-1"), "latin-1"),
        ('<meta charset="iso-8859-1"><p>Größe</p>'.encode("latin-1"), None),
        ("<p>Größe</p>".encode(), "utf-8"),
        ("<p>Größe</p>".encode(), "no-such-charset"),
    ],
)
def test_letters_are_read_as_they_were_written(html: bytes, charset: str | None) -> None:
    assert to_markdown(html, HERE, charset) == "Größe"


@pytest.mark.parametrize("html", [b"", b"<", b"<html>", b"\x00\xff\xfe", b"<!-- only this -->"])
def test_hardly_any_page_is_no_error(html: bytes) -> None:
    assert len(to_markdown(html, HERE)) < 10


@pytest.mark.parametrize("unit", [b"<div>", b"<ul><li>x", b"<blockquote>x", b"<b><i>"])
def test_what_nobody_could_lay_out_is_plain_text(unit: bytes) -> None:
    assert "end" in to_markdown(unit * 5_000 + b"end", HERE)


@pytest.mark.parametrize("unit", [b'<a b="', b"<a ", b"<!--a", b"</div", b"<![CDATA["])
def test_a_hostile_page_does_not_take_the_square_of_its_size(unit: bytes) -> None:
    """A parser that does takes minutes for this."""
    began = time.monotonic()
    to_markdown(unit * (500_000 // len(unit)), HERE)
    assert time.monotonic() - began < 20
