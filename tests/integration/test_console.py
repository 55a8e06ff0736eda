"""The console is served by a real gateway, with the headers that keep it to itself."""

import re

from integration.gateway_world import World


async def test_the_page_and_all_of_its_modules_are_served_and_locked_up(world: World) -> None:
    page = await world.http.get("/")
    assert page.status_code == 200, page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page.text), "nothing stands inline"

    seen: set[str] = set()
    waiting = re.findall(r'(?:src|href)="(/console/[^"]+)"', page.text)
    assert waiting
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await world.http.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        if path.endswith(".js"):
            assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
            for name in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", answer.text):
                waiting.append(str(answer.request.url.join(name).path))
    assert "/console/state/run_tree.js" in seen


async def test_what_a_browser_has_is_not_sent_again(world: World) -> None:
    first = await world.http.get("/console/main.js")
    again = await world.http.get("/console/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    other = await world.http.get("/console/main.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_no_other_site_may_use_it_and_no_other_file_is_served(world: World) -> None:
    cross = await world.http.get("/console/main.js", headers={"Sec-Fetch-Site": "cross-site"})
    assert (cross.status_code, cross.json()["code"]) == (403, "cross-origin")
    for path in (
        "/console/assets.py",
        "/console/../assets.py",
        "/console/%2e%2e/assets.py",
        "/console/package.json",
    ):
        answer = await world.http.get(path)
        assert answer.status_code == 404, path
    assert "/" not in (await world.http.get("/openapi.json")).json()["paths"]


async def test_a_name_that_was_pointed_at_its_address_reaches_nothing(world: World) -> None:
    for path in ("/", "/v1/runs", "/openapi.json"):
        answer = await world.http.get(path, headers={"Host": "evil.example:8080"})
        assert (answer.status_code, answer.json()["code"]) == (421, "unknown-host"), path
