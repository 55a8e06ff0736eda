// All calls and questions that wait for a person, decided in place, one or several at once; and those that were decided.

import { callPath, get, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { decidedList } from "../view/decided_list.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, badge, button, empty, field, fill, h, withCode } from "../view/element.js";
import { brief, clock, relative } from "../view/format.js";
import { keyLegend, onKeys } from "../view/keys.js";
import { showValue } from "../view/value.js";

const LISTED = 50;
const MARKS = { approved: "ok", corrected: "held", rejected: "failed", expired: "dropped" };

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
  return () => {
    refresh();
    list.close?.();
  };
}

/** The calls that wait; `again` asks for the list once more. */
function waitingList(body, again) {
  const none = empty("Nothing waits for a person.");
  const list = h("div", { class: "inbox" });
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
  const legend = keyLegend([[["j", "k"], "next, previous"], ["a", "approve"], ["r", "reject"], ["x", "select"], ["e", "edit"]]);
  const cards = new Map(); // by call: what a person types must stay
  let current = null; // the card that keys act on
  let place = -1; // its place, so that the next one is found when it is decided
  fill(body, legend, batch, outcomes, none, list, more);

  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      cards.get(target.dataset.call)?.loadResults();
    }
  }, { rootMargin: "800px 0px" });
  const stopKeys = onKeys({
    j: () => go(cards.has(current) ? 1 : 0),
    k: () => go(-1),
    a: () => cards.get(current)?.form.press("approved"),
    r: () => cards.get(current)?.form.press("rejected"),
    x: () => cards.get(current)?.mark.click(),
    e: () => cards.get(current)?.element.querySelector(".decision :is(input, textarea, select)")?.focus(),
  });

  /** Makes the card so many places further on the one that keys act on. */
  function go(by) {
    const order = [...list.children];
    if (!order.length) return;
    const at = cards.has(current) ? order.indexOf(cards.get(current).element) : Math.max(place, 0);
    order[Math.min(Math.max(at + by, 0), order.length - 1)].focus();
  }

  function makeCurrent(call) {
    cards.get(current)?.element.removeAttribute("aria-current");
    current = call;
    place = [...list.children].indexOf(cards.get(call).element);
    cards.get(call).element.setAttribute("aria-current", "true");
  }

  function count() {
    const number = chosen().length;
    all.checked = number > 0 && number === cards.size;
    buttons[0].textContent = `Approve ${number}`;
    buttons[1].textContent = `Reject ${number}`;
    for (const one of buttons) one.disabled = !number;
  }

  /** One after the other, each with its outcome: others may have decided on some meanwhile. */
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
    const { call } = approval;
    const [since, expires] = [h("span", null), h("span", { class: "expires", hidden: !approval.expires_at })];
    const mark = h("input", { type: "checkbox", onchange: count, "aria-label": `Select ${approval.kind === "question" ? "the question" : approval.name} of ${approval.agent}` });
    const form = decisionForm(call, approval, () => setTimeout(again, 800));
    const results = h("div", null);
    const element = h("article", { class: "card asks", tabIndex: -1, dataset: { call }, "aria-label": approval.headline, onfocusin: () => makeCurrent(call) },
      h("header", null, h("h2", null, mark, " ", withCode(approval.headline)),
        h("p", { class: "meta" }, h("span", null, whatOf(approval)), since, expires,
          approval.user && h("span", null, "for ", h("a", { href: `#${withQuery("/runs", { user: approval.user })}` }, approval.user)),
          approval.session && h("span", null, "session ", h("a", { href: `#${withQuery("/runs", { session: approval.session })}` }, brief(approval.session, 24))),
          h("a", { href: `#/run/${encodeURIComponent(approval.tree)}?at=${encodeURIComponent(`call:${call}`)}` }, "run"))),
      h("div", { class: "why" }, chainOf(approval), earlierOf(approval), results),
      form.element);
    const tick = () => {
      since.textContent = `asked ${relative(approval.requested_at)}`;
      expires.textContent = approval.expires_at ? `counts as rejected ${relative(approval.expires_at)} (${clock(approval.expires_at)})` : "";
    };
    const loadResults = async () => {
      try {
        const whole = await get(callPath(call));
        fill(results, resultsOf(whole.results ?? []));
      } catch (error) {
        fill(results, error.code !== "unknown-approval" && alert(error.message));
      }
    };
    return { element, tick, mark, form, loadResults, title: approval.headline };
  }

  function show({ approvals, next }) {
    more.hidden = !next;
    none.hidden = approvals.length > 0;
    legend.hidden = !approvals.length;
    batch.hidden = approvals.length < 2;
    const there = new Set(approvals.map((one) => one.call));
    for (const [call, card] of cards) {
      if (there.has(call)) continue;
      seen.unobserve(card.element);
      card.element.remove();
      cards.delete(call);
    }
    for (const approval of approvals) {
      if (!cards.has(approval.call)) {
        const card = drawCard(approval);
        cards.set(approval.call, card);
        list.append(card.element);
        seen.observe(card.element);
      }
      cards.get(approval.call).tick();
    }
    count();
  }

  return { show, close: () => { stopKeys(); seen.disconnect(); } };
}

function whatOf({ kind, name, agent }) {
  if (kind === "question") return `question of ${agent}`;
  return `${kind === "member" ? "delegation to" : "call of"} ${name} by ${agent}`;
}

/** Who asked for what: the tasks from the root's to that of the run itself. */
function chainOf({ chain }) {
  return [
    h("h3", null, "Who asked for what"),
    h("ol", { class: "chain" }, chain.map(({ run, agent, task }) => h("li", null,
      h("a", { href: `#/run/${encodeURIComponent(run)}` }, agent), " ", h("span", { title: task }, brief(task, 200))))),
  ];
}

function earlierOf({ earlier, name, agent, kind }) {
  const counts = Object.entries(earlier);
  const what = kind === "question" ? `Questions of ${agent}` : `${name} by ${agent}`;
  return h("p", { class: "earlier" }, `${what} before: `, counts.length ? counts.map(([verdict, count]) => badge(MARKS[verdict] ?? "open", `${verdict} ${count}`)) : "nothing was decided yet");
}

function resultsOf(results) {
  if (!results.length) return null;
  return [
    h("h3", null, "Last results in its run"),
    h("ul", { class: "results" }, results.map(({ asked, result, failed }) => h("li", null,
      h("code", null, brief(asked, 160)), failed ? h("div", { class: "bad" }, result) : showValue(result, 1)))),
  ];
}
