// What agents remember: searched, listed, forgotten.

import { get, post, request, withQuery } from "../http/api.js";
import { alert, dialog, empty, field, fill, h, toast, withCode } from "../view/element.js";
import { clock } from "../view/format.js";

const WHOSE = ["user", "agent", "team", "session", "run"];
const PAGE = 20;

/** Shows the page. */
export function memoryPage(main, { query, setQuery }) {
  const problem = h("div", null);
  const list = h("div", { class: "cards" });
  const more = h("div", { class: "actions" });
  const words = h("input", { type: "search", name: "query", value: query.get("query") ?? "" });
  const controls = Object.fromEntries(WHOSE.map((name) => [name, h("input", { type: "search", name, value: query.get(name) ?? "" })]));
  const form = h("form", { class: "bar", role: "search" }, field("Search for", words),
    WHOSE.map((name) => field(name[0].toUpperCase() + name.slice(1), controls[name])), h("button", { type: "submit", class: "primary" }, "Find"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setQuery({ query: words.value, ...selection() });
    find();
  });
  fill(main, h("h1", null, "Memory"), form, problem, list, more);
  find();

  function selection() {
    const given = Object.entries(controls).map(([name, control]) => [name, control.value.trim()]).filter(([, value]) => value);
    return Object.fromEntries(given);
  }

  async function find(after = "") {
    const given = selection();
    const whose = Object.keys(given).length ? given : { all: true };
    try {
      fill(problem);
      const found = words.value.trim()
        ? await post("/v1/memory/search", { query: words.value.trim(), selection: whose, k: PAGE })
        : await get(withQuery("/v1/memory", { ...whose, limit: PAGE, after }));
      const memories = found.hits ?? found.memories;
      if (found.degraded) fill(problem, alert(found.why));
      if (!after) fill(list);
      list.append(...memories.map(card));
      if (!list.children.length) fill(list, empty("Nothing is remembered that fits."));
      fill(more, found.next && h("button", { type: "button", onclick: () => find(found.next) }, "More"));
    } catch (error) {
      fill(list);
      fill(problem, alert(error.message));
    }
  }

  function card(memory) {
    const element = h("article", { class: "card" },
      h("p", { class: "reason" }, withCode(memory.text)),
      h("p", { class: "meta" }, h("span", null, memory.scope), h("span", null, memory.agent), memory.user && h("span", null, memory.user),
        h("a", { href: `#/run/${encodeURIComponent(memory.tree)}` }, "run"), h("span", null, clock(memory.at ?? memory.created_at))),
      h("div", { class: "actions" }, h("button", { type: "button", class: "danger", onclick: forget }, "Forget")));
    return element;

    function forget() {
      dialog("Forget this memory?", [h("p", null, withCode(memory.text))], "Forget", async () => {
        await request("DELETE", `/v1/memory/${encodeURIComponent(memory.memory)}`);
        element.remove();
        toast("forgotten");
      });
    }
  }
}
