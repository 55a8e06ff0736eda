// The list of runs, newest first, with filters that stay in the address, and a task for the team.

import { get, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { runMark } from "../state/run_tree.js";
import { alert, badge, empty, field, fill, h, table } from "../view/element.js";
import { brief, clock, cost, count, duration } from "../view/format.js";
import { startRun } from "./new_run.js";

const STATES = ["queued", "running", "waiting", "success", "max_steps_error", "error", "cancelled"];
const SORTS = [["", "newest"], ["ended", "ended last"], ["cost", "dearest"]];
const PAGE_RUNS = 50;

/** Shows the page; returns what ends it. */
export function runsPage(main, { query, setQuery }) {
  const filters = { agent: query.get("agent") ?? "", state: query.get("state") ?? "", session: query.get("session") ?? "", user: query.get("user") ?? "", text: query.get("text") ?? "", since: query.get("since") ?? "", until: query.get("until") ?? "", sort: query.get("sort") ?? "" };
  let before = query.get("before") ?? "";
  const problem = h("div", null);
  const list = h("div", { class: "runs", "aria-busy": "true" });
  const paging = h("div", { class: "actions" });
  const agents = h("datalist", { id: "agents" });

  const change = (name) => (event) => {
    filters[name] = event.target.value.trim();
    before = "";
    setQuery({ ...filters, before });
    refresh.now();
  };
  const bar = h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() },
    field("Agent", h("input", { type: "search", value: filters.agent, list: "agents", onchange: change("agent") })),
    field("State", h("select", { onchange: change("state") },
      h("option", { value: "" }, "any"),
      STATES.map((one) => h("option", { value: one, selected: one === filters.state }, one)))),
    field("Session", h("input", { type: "search", value: filters.session, onchange: change("session") })),
    field("User", h("input", { type: "search", value: filters.user, onchange: change("user") })),
    field("Words", h("input", { type: "search", value: filters.text, title: "All of them in the task or the answer", onchange: change("text") })),
    field("Order", h("select", { onchange: change("sort") },
      SORTS.map(([value, name]) => h("option", { value, selected: value === filters.sort }, name)))),
    h("button", { type: "button", class: "primary", onclick: () => newRun() }, "New run"));
  const time = h("p", { class: "meta", hidden: !filters.since && !filters.until },
    h("span", null, `asked for ${filters.since ? `from ${shown(filters.since)}` : ""} ${filters.until ? `until ${shown(filters.until)}` : ""}`),
    h("button", { type: "button", class: "quiet", onclick: () => {
      time.hidden = true;
      Object.assign(filters, { since: "", until: "" });
      before = "";
      setQuery({ ...filters, before });
      refresh.now();
    } }, "any time"));
  fill(main, h("h1", null, "Runs"), bar, time, agents, problem, list, paging);

  const refresh = poll(3, async (signal) => {
    const page = await get(withQuery("/v1/runs", { ...filters, before, limit: PAGE_RUNS }), signal);
    draw(page);
  }, (error) => fill(problem, error && alert(error.message)));
  get("/v1/agents").then(({ agents: live }) => fill(agents, live.map((one) => h("option", { value: one.name })))).catch(() => {});

  function draw({ runs, next }) {
    list.removeAttribute("aria-busy");
    if (list.contains(document.activeElement) && document.activeElement.matches("a")) {
      const href = document.activeElement.getAttribute("href");
      queueMicrotask(() => list.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus());
    }
    if (!runs.length) fill(list, empty(before || Object.values(filters).some(Boolean) ? "No run fits these filters." : "No runs yet: give the team its first task by “New run”."));
    else fill(list, table(["State", "Task", "Agent", "Step", "Tokens", "Cost", "Took", "Began"], runs.map(cells)));
    fill(paging,
      before && h("button", { type: "button", onclick: () => turn("") }, "Newest"),
      next && h("button", { type: "button", onclick: () => turn(next) }, "Older"));
  }

  function turn(to) {
    before = to;
    setQuery({ before });
    refresh.now();
  }

  function filterBy(name, value) {
    filters[name] = value;
    before = "";
    setQuery({ ...filters, before });
    const control = bar.querySelector(name === "agent" ? "input" : "select");
    control.value = value;
    refresh.now();
  }

  function cells(run) {
    const tokens = run.usage.input_tokens + run.usage.output_tokens;
    const now = Date.now() / 1000;
    const waits = run.waiting_for && run.waiting_for !== "approval" ? ` for ${run.waiting_for}` : "";
    return [
      h("span", null, badge(runMark(run.state, run.approvals), run.state.replaceAll("_", " ") + waits),
        run.approvals > 0 && h("a", { class: "badge held", href: `#/approvals?tree=${encodeURIComponent(run.id)}` }, `${run.approvals} to approve`)),
      h("a", { href: `#/run/${encodeURIComponent(run.id)}`, title: run.task }, brief(run.task, 120) || run.id),
      h("button", { type: "button", class: "quiet", title: `Only runs of ${run.agent}`, onclick: () => filterBy("agent", run.agent) }, run.agent),
      run.step || "",
      count(tokens),
      cost(run.usage.cost),
      duration((run.ended_at ?? now) - run.started_at),
      h("span", { class: "nowrap" }, clock(run.started_at)),
    ];
  }

  async function newRun() {
    await startRun({ agent: filters.agent });
  }

  return refresh;
}

/** A time of the address, which has Unix seconds or what the API takes otherwise. */
const shown = (at) => (Number(at) ? clock(Number(at)) : at);
