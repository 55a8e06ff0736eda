// All calls and questions that wait for a person, decided in place.

import { get, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, empty, field, fill, h } from "../view/element.js";
import { brief, clock, relative } from "../view/format.js";

/** Shows the page; returns what ends it. */
export function approvalsPage(main, { query, setQuery }) {
  const filters = { agent: query.get("agent") ?? "", tree: query.get("tree") ?? "" };
  const problem = h("div", null);
  const none = empty("Nothing waits for a person.");
  const list = h("div", { class: "cards" });
  const more = h("p", { class: "empty", hidden: true }, "There are more; decide on these first.");
  const cards = new Map(); // by call: what a person types must stay
  const change = (name) => (event) => {
    filters[name] = event.target.value.trim();
    setQuery(filters);
    refresh.now();
  };
  fill(main, h("h1", null, "Approvals"),
    h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Agent", h("input", { type: "search", value: filters.agent, onchange: change("agent") })),
      field("Tree", h("input", { type: "search", value: filters.tree, onchange: change("tree") }))),
    problem, none, list, more);

  const refresh = poll(3, async (signal) => {
    const { approvals, next } = await get(withQuery("/v1/approvals", { ...filters, limit: 50 }), signal);
    more.hidden = !next;
    none.hidden = approvals.length > 0;
    const there = new Set(approvals.map((one) => one.call));
    for (const [call, card] of cards) {
      if (there.has(call)) continue;
      card.element.remove();
      cards.delete(call);
    }
    for (const approval of approvals) {
      if (!cards.has(approval.call)) {
        const card = drawCard(approval);
        cards.set(approval.call, card);
        list.append(card.element);
      }
      cards.get(approval.call).tick();
    }
  }, (error) => fill(problem, error && alert(error.message)));

  function drawCard(approval) {
    const since = h("span", null);
    const path = `#/run/${encodeURIComponent(approval.tree)}`;
    const element = h("article", { class: "card" },
      h("h2", null, approval.kind === "question" ? "Question" : approval.name),
      h("p", { class: "meta" }, h("span", null, approval.agent), since, h("a", { href: path }, "run"), h("span", null, brief(approval.task, 120))),
      decisionForm(approval.call, approval, () => setTimeout(() => refresh.now(), 800)));
    const tick = () => {
      const left = approval.expires ? `, expires ${relative(approval.expires)} (${clock(approval.expires)})` : "";
      since.textContent = `${relative(approval.requested_at)}${left}`;
    };
    return { element, tick };
  }

  return refresh;
}
