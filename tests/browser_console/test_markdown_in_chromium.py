"""Answers in Markdown are shown as they are meant, and nothing that a model writes acts."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browser_console.observed import Pictures
from harness.stack import Gateway, Stack

AGENT = """\
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: writer}
spec:
  description: Writes, with `code` in what it says of itself.
  instructions: You write.
"""
ANSWER = """\
# Report for *May*

Sales rose by **12 %**, see [the sheet](https://sheets.example/may?a=1&b=2) and `totals.csv`. Account 9007199254740993.

1. North
   - Bern
2. South

| region | sum |
|---|---|
| North | 1.10 |

```python
print("<b>not bold</b>")
```

<script>window.hit = 1</script> <img src=x onerror="window.hit = 2">
[press](javascript:window.hit=3) ![picture](https://pictures.example/track.png)
[data](data:text/html,<script>window.hit=4</script>)
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("team")
    (folder / "writer.yaml").write_text(AGENT)
    reply = {"tool_calls": [{"name": "final_answer", "arguments": {"answer": ANSWER}}]}
    (folder / "script.yaml").write_text(json.dumps({"rules": [{"name": "writes", "match": {}, "reply": reply}]}))
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(folder / "script.yaml")
        stack.agent(folder / "writer.yaml", start=False)
        yield stack.open_gateway(1)


def test_an_answer_is_shown_as_it_is_meant_and_nothing_in_it_acts(
    page: Page, gateway: Gateway, pictures: Pictures
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    run = gateway.submit("writer", "Write `it`.", session="may")
    gateway.finished(run)
    for path, place in ((f"run/{run}?at=run:{run}", ".detail"), ("chat?agent=writer&session=may", ".said")):
        page.goto(f"{gateway.service.url}/#/{path}")
        answer = page.locator(place).locator(".markdown").first
        expect(answer.get_by_role("heading", name="Report for May")).to_be_visible()
        expect(answer.locator("strong")).to_have_text("12 %")
        expect(answer.locator("p code")).to_have_text("totals.csv")
        expect(answer.locator("ol > li > ul > li")).to_have_text("Bern")
        expect(answer.get_by_role("cell", name="1.10")).to_be_visible()
        expect(answer.locator("pre code")).to_have_text('print("<b>not bold</b>")')
        link = answer.get_by_role("link", name="the sheet")
        expect(link).to_have_attribute("href", "https://sheets.example/may?a=1&b=2")
        expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
        expect(answer).to_contain_text("Account 9007199254740993.")
        expect(answer).to_contain_text("<script>window.hit = 1</script>")
        assert answer.locator("script, img, iframe, style, svg").count() == 0
        hrefs = answer.locator("a").evaluate_all("links => links.map(one => one.protocol)")
        assert set(hrefs) == {"https:"}
        pictures.at_all_widths(page, f"markdown-{path.partition('/')[0].partition('?')[0]}")
        page.locator(place).get_by_role("button", name="As written").first.click()
        expect(page.locator(place).locator(".answer > pre").first).to_have_text(ANSWER)
    assert page.evaluate("window.hit") is None
    assert [url for url in asked if not url.startswith(gateway.service.url)] == []
    expect(page.locator(".asked code")).to_have_text("it")
    page.goto(f"{gateway.service.url}/#/team")
    expect(page.get_by_role("article").locator("p code")).to_have_text("code")
