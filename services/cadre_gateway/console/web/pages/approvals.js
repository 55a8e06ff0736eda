// All calls and questions that wait for a person, decided in place, one or several at once; and those that were decided.

import { get, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { decidedList } from "../view/decided_list.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, button, empty, field, fill, h } from "../view/element.js";
import { argumentsText, brief, clock, relative } from "../view/format.js";

const LISTED = 50;

/** Shows the page; returns what ends it. */
export function approvalsPage(main, { query, setQuery }) {
  const filters = { agent: query.get("agent") ?? "", tree: query.get("tree") ?? "" };
  const decided = query.get("view") === "decided";
  const problem = h("div", null);
  const body = h("div", null);
  const change = (name) => (event) => {
    filters[name] = event.target.value.trim();
    setQuery(filters);
    refresh.now();
  };
  const tab = (words, view) => h("a", { href: `#${withQuery("/approvals", { ...filters, view })}`, "aria-current": (view === "decided") === decided && "page" }, words);
  fill(main, h("h1", null, "Approvals"),
    h("nav", { class: "tabs", "aria-label": "Which calls" }, tab("Waiting", ""), tab("Decided", "decided")),
    h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Agent", h("input", { type: "search", value: filters.agent, onchange: change("agent") })),
      field("Tree", h("input", { type: "search", value: filters.tree, onchange: change("tree") }))),
    problem, body);
  const list = decided ? decidedList(body) : waitingList(body, () => refresh.now());
  const refresh = poll(3, async (signal) => {
    list.show(await get(withQuery("/v1/approvals", { ...filters, state: decided ? "decided" : "", limit: LISTED }), signal));
  }, (error) => fill(problem, error && alert(error.message)));
  return refresh;
}

/** The calls that wait; `again` asks for them anew. */
function waitingList(body, again) {
  const none = empty("Nothing waits for a person.");
  const list = h("div", { class: "cards" });
  const more = h("p", { class: "empty", hidden: true }, "There are more; decide on these first.");
  const outcomes = h("ul", { role: "status", "aria-label": "Outcomes" });
  const words = h("input", { type: "text", name: "feedback" });
  const all = h("input", { type: "checkbox", onchange: () => {
    for (const card of cards.values()) card.mark.checked = all.checked;
    count();
  } });
  const chosen = () => [...cards.values()].filter((card) => card.mark.checked);
  const buttons = [button("Approve", () => decide("approved"), { class: "primary" }), button("Reject", () => decide("rejected"), { class: "danger" })];
  const batch = h("div", { class: "bar batch", role: "group", "aria-label": "Decide on several", hidden: true },
    h("label", null, all, " All"), field("Feedback for all", words), h("div", { class: "actions" }, buttons));
  const cards = new Map(); // by call: what a person types must stay
  fill(body, batch, outcomes, none, list, more);

  function count() {
    const number = chosen().length;
    all.checked = number > 0 && number === cards.size;
    buttons[0].textContent = `Approve ${number}`;
    buttons[1].textContent = `Reject ${number}`;
    for (const one of buttons) one.disabled = !number;
  }

  /** One after the other, and each outcome is told: some may have been decided by others meanwhile. */
  async function decide(verdict) {
    fill(outcomes);
    for (const { title, form, mark } of chosen()) {
      let outcome;
      try {
        outcome = await form.decide(verdict, words.value.trim());
        mark.checked = false;
      } catch (error) {
        outcome = h("span", { class: "bad" }, `not decided: ${error.message}`);
      }
      outcomes.append(h("li", null, h("strong", null, title), ": ", outcome));
    }
    words.value = "";
    again();
  }

  function drawCard(approval) {
    const since = h("span", null);
    const name = approval.kind === "question" ? "Question" : approval.name;
    const mark = h("input", { type: "checkbox", onchange: count, "aria-label": `Select ${name} of ${approval.agent}` });
    const form = decisionForm(approval.call, approval, () => setTimeout(again, 800));
    const element = h("article", { class: "card" },
      h("h2", null, h("label", null, mark, name)),
      h("p", { class: "meta" }, h("span", null, approval.agent), since, h("a", { href: `#/run/${encodeURIComponent(approval.tree)}` }, "run"), h("span", null, brief(approval.task, 120))),
      form.element);
    const tick = () => {
      const left = approval.expires_at ? `, expires ${relative(approval.expires_at)} (${clock(approval.expires_at)})` : "";
      since.textContent = `${relative(approval.requested_at)}${left}`;
    };
    return { element, tick, mark, form, title: `${name} (${argumentsText(approval.arguments, 100)})` };
  }

  function show({ approvals, next }) {
    more.hidden = !next;
    none.hidden = approvals.length > 0;
    batch.hidden = approvals.length < 2;
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
    count();
  }

  return { show };
}
