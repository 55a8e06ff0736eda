// Markdown of models as elements: what it means where it is well formed, text where it is not, and nothing that acts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { openPage } from "./page.mjs";

openPage();
const { markdown } = await import("../../services/cadre_gateway/console/web/view/markdown.js");
const { withCode } = await import("../../services/cadre_gateway/console/web/view/element.js");

/** The elements in short: `p(a strong(b))`. */
const short = (node) => (typeof node === "string" ? node : `${node.tag}(${node.children.map(short).join("")})`);
const of = (text) => markdown(text).children.map(short).join(" ");

test("blocks are what they mean", () => {
  for (const [text, found] of [
    ["a\nb\n\nc", "p(a\nb) p(c)"], ["# A *b*", "h3(A em(b))"], ["####### no", "p(####### no)"], ["---", "hr()"], ["> a\n> > b", "blockquote(p(a)blockquote(p(b)))"],
    ["```js\nlet <b> = `x`;\n```\nafter", "pre(code(let <b> = `x`;)) p(after)"], ["~~~\nopen", "pre(code(open))"],
    ["- a\n- **b**\n  - c", "ul(li(a)li(strong(b)ul(li(c))))"], ["1. a\n2. b", "ol(li(a)li(b))"], ["text\n- a", "p(text) ul(li(a))"], ["- a\n\n- b", "ul(li(a)li(b))"],
    ["| a | b |\n|---|:-:|\n| 1 | `x` |", "div(table(thead(tr(th(a)th(b)))tbody(tr(td(1)td(code(x))))))"], ["a | b\nno table", "p(a | b\nno table)"],
  ]) assert.equal(of(text), found, text);
});

test("emphasis, code and links in a line", () => {
  for (const [text, found] of [
    ["**a** _b_ ~~c~~", "strong(a) em(b) del(c)"], ["***a***", "strong(em(a))"], ["2 * 3 * 4", "2 * 3 * 4"], ["snake_case_name", "snake_case_name"], ["**open", "**open"],
    ["``a ` b``", "code(a ` b)"], ["`open", "`open"], ["\\*no\\*", "*no*"], ["[a *b*](https://x.example/?q=1)", "a(a *b*)"], ["see https://x.example/a.", "see a(https://x.example/a)."],
    ["<https://x.example>", "a(https://x.example)"], ["9007199254740993 and 1.10", "9007199254740993 and 1.10"],
  ]) assert.equal(of(text), `p(${found})`, text);
});

test("a link leads to the web, in a page of its own, or it is no link", () => {
  const [link] = markdown("[x](https://x.example/a)").all("a");
  assert.deepEqual([link.attributes.href, link.attributes.rel, link.attributes.target], ["https://x.example/a", "noopener noreferrer nofollow", "_blank"]);
  for (const address of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "//evil.example", "/v1/runs", "java\tscript:alert(1)", "&#106;avascript:alert(1)", "blob:https://x", "https:", "ftp://x", "http://"]) {
    for (const one of markdown(`[x](${address})`).all("a")) assert.match(one.attributes.href, /^https?:/, address);
    assert.ok(!markdown(`[x](${address})`).textContent.startsWith("x"), address);
    assert.equal(markdown(`![x](${address})`).all("img").length, 0, address);
  }
});

test("markup is text", () => {
  for (const text of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "**<b onclick=x>**", "| <i> |\n|---|\n| <svg/onload=x> |", "`<iframe>`", "[<img src=x>](https://x.example)", "<a href=javascript:alert(1)>x</a>"]) {
    const root = markdown(text);
    for (const tag of ["script", "img", "b", "i", "svg", "iframe"]) assert.equal(root.all(tag).length, 0, text);
    assert.ok(root.textContent.includes(text.match(/<[^>]+>/)[0]), text);
  }
});

test("hostile text takes no longer than its length", () => {
  for (const piece of ["**a ", "*a ", "_a ", "`a", "``a`", "[", "[a](", "![a](b", "> ", "- ", "  - a\n", "| a |\n", "https://", "<https://", "\\", "~~a ", "[a](https://x.example/(", "***", "1. a\n   ", "#", "```\n"]) {
    const text = piece.repeat(Math.ceil(50_000 / piece.length));
    const begun = performance.now();
    markdown(text);
    assert.ok(performance.now() - begun < 3000, `${JSON.stringify(piece)}: ${performance.now() - begun} ms`);
  }
});

test("what stands in backticks is code in words of the console too", () => {
  assert.deepEqual(withCode("run `cadre up` or ``a`` now `").map((one) => (typeof one === "string" ? one : short(one))), ["run ", "code(cadre up)", " or ", "code(a)", " now `"]);
});
