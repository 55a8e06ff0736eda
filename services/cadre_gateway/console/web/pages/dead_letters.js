// Messages that nobody could handle: shown, delivered again, removed.

import { get, request, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { alert, button, dialog, empty, fill, h, table, toast, withCode } from "../view/element.js";
import { bytes, clock } from "../view/format.js";
import { showValue } from "../view/value.js";

/** Shows the page; returns what ends it. */
export function deadLettersPage(main, { query, setQuery }) {
  let before = query.get("before") ?? "";
  const problem = h("div", null);
  const list = h("div", null);
  const paging = h("div", { class: "actions" });
  fill(main, h("h1", null, "Dead letters"), problem, list, paging);

  const refresh = poll(10, async (signal) => {
    const { dead_letters: letters, next } = await get(withQuery("/v1/dead-letters", { before, limit: 50 }), signal);
    fill(list, letters.length ? table(["At", "Queue", "Message", "Run", "Why", "Tries", ""], letters.map((one) => [
      h("span", { class: "nowrap" }, clock(one.at)), one.queue, `${one.kind ?? "gone"}${one.size ? `, ${bytes(one.size)}` : ""}`,
      one.tree && h("a", { href: `#/run/${encodeURIComponent(one.tree)}` }, one.run ?? one.tree), withCode(one.reason), one.deliveries,
      h("span", { class: "actions" }, button("Show", () => show(one.id)),
        button("Deliver again", () => act("POST", `/v1/dead-letters/${one.id}/retry`, "delivered again")),
        h("button", { type: "button", class: "danger", onclick: () => remove(one.id) }, "Remove")),
    ])) : empty("Every message found somebody who could handle it."));
    fill(paging, before && h("button", { type: "button", onclick: () => turn("") }, "Newest"),
      next && h("button", { type: "button", onclick: () => turn(next) }, "Older"));
  }, (error) => fill(problem, error && alert(error.message)));

  function turn(to) {
    before = to;
    setQuery({ before: String(to) });
    refresh.now();
  }

  async function act(method, path, words) {
    await request(method, path);
    toast(words);
    refresh.now();
  }

  function remove(id) {
    dialog("Remove the dead letter?", [h("p", null, "Whoever waits for it waits on.")], "Remove", () => act("DELETE", `/v1/dead-letters/${id}`, "removed"));
  }

  async function show(id) {
    dialog(`Dead letter ${id}`, [showValue(await get(`/v1/dead-letters/${id}`))], "OK", async () => {}).classList.add("wide");
  }

  return refresh;
}
