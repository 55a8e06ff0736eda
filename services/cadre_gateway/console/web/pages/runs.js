// The list of runs, newest first: filters that act while one types, columns and views by choice, and a selection.

import { get, may, post, runPath, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { HeldList } from "../state/held_list.js";
import { runMark } from "../state/run_tree.js";
import { alert, badge, button, dialog, empty, field, fill, h, liveTable, toast, withCode } from "../view/element.js";
import { brief, clock, cost, count, duration, errorText } from "../view/format.js";
import { keep, kept } from "../view/kept.js";
import { keyLegend, onKeys } from "../view/keys.js";
import { startRun } from "./new_run.js";

/** States, and words for several of them. */
const STATES = { going: ["queued", "running", "waiting"], failed: ["error", "max_steps_error"] };
const STATE_CHOICES = [["", "any"], ["going", "not ended"], ["failed", "failed"], ...["queued", "running", "waiting", "success", "max_steps_error", "error", "cancelled"].map((one) => [one, one.replaceAll("_", " ")])];
const SORTS = [["", "newest"], ["ended", "ended last"], ["cost", "dearest"]];
const TIMES = [["", "any time"], ["1h", "last hour"], ["24h", "last 24 hours"], ["7d", "last 7 days"], ["30d", "last 30 days"], ["range", "a range"]];
const FILTERS = ["agent", "member", "state", "session", "user", "text", "label", "error", "min_cost", "since", "until", "sort"];
const PAGE_RUNS = 50;
const MOST_SELECTED = 10_000;
const TYPING_MS = 250;
const READING_MS = 60_000; // as long after somebody moved, the list stays as it is
const AT_ONCE = 6; // requests
const SHOWN_FIRST = ["agent", "step", "tokens", "cost", "took", "began"];

/** Shows the page; returns what ends it. */
export function runsPage(main, { query, setQuery }) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  let before = query.get("before") ?? "";
  let held = new HeldList();
  let following = null; // the `before` of the page behind this one
  let total = null;
  let hold = false;
  let acts = false;
  let moved = Date.now();
  let typing = null;
  const selected = new Map();
  let columnNames = query.get("columns")?.split(",") ?? kept("columns", SHOWN_FIRST);
  const all = h("input", { type: "checkbox", disabled: true, "aria-label": "Select all that are shown", onchange: () => {
    for (const run of held.shown) {
      if (all.checked) selected.set(run.id, run);
      else selected.delete(run.id);
    }
    draw();
  } });
  const columns = columnsOf({ all, isSelected: (id) => selected.has(id), select, filterBy });
  const problem = h("div", null);
  const news = h("div", { class: "news", role: "status" });
  const none = h("div", { hidden: true });
  const list = liveTable(wantedColumns(), (run) => run.id);
  const runs = h("div", { class: "runs", "aria-busy": "true" }, list.element);
  const paging = h("div", { class: "actions" });
  const chosen = h("div", { class: "batch chosen", role: "region", "aria-label": "Selection", hidden: true });
  const agents = h("datalist", { id: "agents" });

  const typed = (name) => h("input", { type: "search", name, value: filters[name], autocomplete: "off", oninput: (event) => later(name, event.target.value.trim()) });
  const choice = (name, options) => h("select", { name, onchange: (event) => set({ [name]: event.target.value }) },
    options.map(([value, words]) => h("option", { value, selected: value === filters[name] }, words)));
  const words = typed("text");
  words.title = "All of them in the task or the answer";
  const [agent, member] = ["agent", "member"].map(typed);
  for (const one of [agent, member]) one.setAttribute("list", "agents");
  const more = h("details", { class: "more", open: ["member", "session", "label", "error", "min_cost"].some((name) => filters[name]) }, h("summary", null, "More filters"),
    h("div", { class: "bar" }, field("Member", member, "an agent with a run in it"), field("Session", typed("session")), field("Label", typed("label"), "NAME=VALUE, or NAME"), field("Error", typed("error"), "its code"), field("Cost at least", typed("min_cost"))));
  const isRange = () => Boolean(filters.until) || (filters.since !== "" && !TIMES.some(([value]) => value === filters.since));
  const range = h("span", { class: "bar range", hidden: !isRange() }, field("From", timeInput("since")), field("Until", timeInput("until")));
  const times = h("select", { onchange: () => {
    range.hidden = times.value !== "range";
    if (times.value !== "range") {
      for (const input of range.querySelectorAll("input")) input.value = "";
      set({ since: times.value, until: "" });
    }
  } }, TIMES.map(([value, name]) => h("option", { value, selected: value === (isRange() ? "range" : filters.since) }, name)));
  const start = h("span", { class: "push" });
  const bar = h("form", { class: "bar filters", role: "search", onsubmit: (event) => event.preventDefault() },
    field("Words", words), field("Agent", agent), field("State", choice("state", STATE_CHOICES)), field("User", typed("user")),
    field("Asked for", times), range, field("Order", choice("sort", SORTS)), start, more);
  fill(main, h("div", { class: "section-head" }, h("h1", null, "Runs"), h("span", { class: "actions" }, viewsMenu(), columnsMenu())),
    bar, agents, problem, news, none, runs, paging, chosen,
    keyLegend([["/", "words"], [["j", "k"], "next and previous"], ["enter", "open"], ["x", "select"], ["esc", "end the selection"]]));

  const refresh = poll(3, async (signal) => {
    const wanted = { ...asked(), before, limit: hold ? held.limit(PAGE_RUNS) : PAGE_RUNS, count: hold ? undefined : true };
    const page = await get(withQuery("/v1/runs", wanted), signal);
    total = page.total ?? total;
    following = page.next;
    held.take(page.runs, hold && isRead());
    hold = true;
    draw();
  }, (error) => fill(problem, error && alert(error.message)));
  get("/v1/agents").then(({ agents: live }) => fill(agents, live.map((one) => h("option", { value: one.name })))).catch((error) => fill(problem, alert(error.message)));
  may("act").then((allowed) => {
    acts = allowed;
    fill(start, acts && h("button", { type: "button", class: "primary", onclick: () => startRun({ agent: filters.agent }) }, "New run"));
    drawSelection();
  }, (error) => fill(problem, alert(error.message)));

  /** The parameters of the list, as the gateway has them. */
  function asked() {
    return { ...filters, state: STATES[filters.state] ?? filters.state };
  }

  /** Whether somebody reads the list: what is new waits then. */
  function isRead() {
    return scrollY > 0 || selected.size > 0 || list.element.contains(document.activeElement) || Date.now() - moved < READING_MS;
  }

  function set(changed) {
    clearTimeout(typing);
    Object.assign(filters, changed);
    before = "";
    setQuery({ ...filters, before });
    again();
  }

  function later(name, value) {
    filters[name] = value;
    clearTimeout(typing);
    typing = setTimeout(() => set({ [name]: value }), TYPING_MS);
  }

  /** Shows the list as it is now. */
  function again() {
    hold = false;
    held = new HeldList();
    refresh.now();
  }

  function turn(to) {
    before = to;
    setQuery({ before });
    again();
  }

  function filterBy(name, value) {
    const control = bar.querySelector(`[name="${name}"]`);
    control.value = value;
    if (more.contains(control)) more.open = true;
    set({ [name]: value });
  }

  function timeInput(name) {
    const at = Number(filters[name]) ? new Date(Number(filters[name]) * 1000) : null;
    const local = at && new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
    return h("input", { type: "datetime-local", value: local ?? "", onchange: (event) => set({ [name]: event.target.value ? String(new Date(event.target.value).getTime() / 1000) : "" }) });
  }

  function draw() {
    runs.removeAttribute("aria-busy");
    list.draw(held.shown);
    for (const row of list.rows()) {
      row.classList.toggle("gone", held.shown.some((one) => one.gone && one.id === row.dataset.key));
      row.querySelector("input").checked = selected.has(row.dataset.key);
    }
    for (const run of held.shown) if (selected.has(run.id)) selected.set(run.id, run);
    all.disabled = !held.shown.length;
    all.checked = held.shown.length > 0 && held.shown.every(({ id }) => selected.has(id));
    runs.hidden = !held.shown.length;
    none.hidden = held.shown.length > 0;
    fill(none, empty(before || FILTERS.some((name) => name !== "sort" && filters[name]) ? "No run fits these filters." : "No runs yet: give the team its first task by “New run”."));
    const { length } = held.waiting;
    if (news.dataset.count !== String(length)) {
      news.dataset.count = length;
      fill(news, length > 0 && h("button", { type: "button", onclick: () => {
        again();
        window.scrollTo(0, 0);
      } }, `${length} new ${length === 1 ? "run" : "runs"}`));
    }
    fill(paging,
      total !== null && h("span", { class: "hint" }, `${total.toLocaleString()} ${total === 1 ? "run" : "runs"}`),
      before && h("button", { type: "button", onclick: () => turn("") }, "Newest"),
      following && h("button", { type: "button", onclick: () => turn(following) }, "Older"));
    drawSelection();
  }

  function select(id, on) {
    const run = held.shown.find((one) => one.id === id);
    if (on && run) selected.set(id, run);
    else selected.delete(id);
    draw();
  }

  function drawSelection() {
    const runs = [...selected.values()];
    chosen.hidden = !runs.length;
    if (!runs.length) return;
    const going = runs.filter((run) => !run.ended_at);
    const sum = (measure) => runs.reduce((all, run) => all + measure(run.usage), 0);
    const signature = [runs.length, going.length, sum((one) => one.cost), sum((one) => one.input_tokens + one.output_tokens), total, acts].join();
    if (chosen.dataset.signature === signature) return;
    chosen.dataset.signature = signature;
    fill(chosen, h("strong", null, `${runs.length.toLocaleString()} selected`),
      h("span", null, `cost ${cost(sum((one) => one.cost)) || "0"}`), h("span", null, `${count(sum((one) => one.input_tokens + one.output_tokens))} tokens`),
      h("span", { class: "actions" },
        total > runs.length && button(`Select all ${total.toLocaleString()} that fit`, selectAll),
        runs.length === 2 && h("a", { href: `#/compare/${runs.map((run) => encodeURIComponent(run.id)).join("/")}` }, "Compare"),
        acts && going.length > 0 && h("button", { type: "button", class: "danger", onclick: () => cancelRuns(going) }, `Cancel ${going.length === 1 ? "the run" : `${going.length.toLocaleString()} runs`}`),
        h("button", { type: "button", onclick: clear }, "Clear")));
  }

  function clear() {
    selected.clear();
    draw();
  }

  async function selectAll() {
    let from = "";
    do {
      const page = await get(withQuery("/v1/runs", { ...asked(), before: from, limit: 1000 }));
      for (const run of page.runs) selected.set(run.id, run);
      from = page.next;
    } while (from && selected.size < MOST_SELECTED);
    if (from) toast(`only the first ${selected.size.toLocaleString()} are selected`, true);
    draw();
  }

  function cancelRuns(runs) {
    const words = `Cancel ${runs.length === 1 ? "the run" : `${runs.length.toLocaleString()} runs`}`;
    dialog(`${words}?`, [
      h("p", null, "What they have done already is made up for, where their agents can."),
      h("ul", { class: "list" }, runs.slice(0, 5).map((run) => h("li", null, withCode(brief(run.task, 80) || run.id))), runs.length > 5 && h("li", null, `${runs.length - 5} more`)),
      field("Reason", h("input", { name: "reason", type: "text" }), "optional; it stands in their journals")], words, async (data) => {
      const left = [...runs];
      const refused = [];
      const work = async () => {
        for (let run = left.pop(); run; run = left.pop()) {
          await post(`${runPath(run.id)}/cancel`, data.get("reason").trim() ? { reason: data.get("reason").trim() } : {}).catch((error) => refused.push(`${run.id}: ${error.message}`));
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      if (refused.length) throw new Error(`${refused.length} of ${runs.length} are not cancelled: ${refused.slice(0, 3).join("; ")}`);
      toast(runs.length === 1 ? "it is being cancelled" : `${runs.length.toLocaleString()} are being cancelled`);
      selected.clear();
      again();
    });
  }

  function wantedColumns() {
    return columns.filter(({ name, always }) => always || columnNames.includes(name));
  }

  function columnsMenu() {
    const element = menu("Columns", () => columns.filter(({ always }) => !always).map(({ name, head }) => h("label", { class: "check" },
      h("input", { type: "checkbox", value: name, checked: columnNames.includes(name), onchange: change }), head)));
    function change() {
      columnNames = [...element.querySelectorAll("input:checked")].map((one) => one.value);
      setQuery({ columns: columnNames.join(",") });
      list.setColumns(wantedColumns());
      draw();
      try {
        keep("columns", columnNames);
      } catch (error) {
        toast(error.message, true);
      }
    }
    return element;
  }

  function viewsMenu() {
    const items = h("ul", { class: "list views" });
    const drawViews = () => {
      const views = kept("views", []);
      fill(items, views.length ? views.map((view) => h("li", null, h("a", { href: `#/runs${view.query && `?${view.query}`}` }, view.name), " ",
        button("Remove", () => save(kept("views", []).filter((one) => one.name !== view.name)), { class: "quiet", "aria-label": `Remove view ${view.name}` }))) : h("li", { class: "none" }, "There are none yet."));
    };
    const save = (views) => {
      keep("views", views);
      drawViews();
    };
    const ask = () => dialog("Save this view", field("Name", h("input", { name: "name", type: "text", required: true, autocomplete: "off" }), "The filters, the order and the columns as they are now, in this browser. Its address is the link for others."), "Save", async (data) => {
      const name = data.get("name").trim();
      if (!name) throw new Error("Write a name");
      const [, written = ""] = location.hash.split("?");
      const own = new URLSearchParams(written);
      own.delete("before");
      own.set("columns", columnNames.join(","));
      save([...kept("views", []).filter((one) => one.name !== name), { name, query: String(own) }]);
      toast(`view ${name} is saved`);
    });
    return menu("Views", () => {
      drawViews();
      return [items, h("button", { type: "button", onclick: ask }, "Save this view")];
    });
  }

  const place = () => list.rows().findIndex((row) => row.contains(document.activeElement));
  const go = (to) => list.rows()[Math.min(Math.max(to, 0), list.rows().length - 1)]?.querySelector(".c-task a").focus();
  const stopKeys = onKeys({
    "/": () => words.select(), j: () => go(place() + 1), k: () => go(place() - 1),
    x: () => {
      const key = list.rows()[place()]?.dataset.key;
      if (key) select(key, !selected.has(key));
    },
    Escape: () => selected.size > 0 && clear(),
  });

  const onMove = () => { moved = Date.now(); };
  const closeMenus = (event) => {
    for (const one of main.querySelectorAll("details.menu[open]")) if (!one.contains(event.target)) one.open = false;
  };
  for (const kind of ["keydown", "pointermove"]) document.addEventListener(kind, onMove);
  document.addEventListener("pointerdown", closeMenus);
  return () => {
    refresh();
    clearTimeout(typing);
    stopKeys();
    for (const kind of ["keydown", "pointermove"]) document.removeEventListener(kind, onMove);
    document.removeEventListener("pointerdown", closeMenus);
  };
}

/** A menu whose content is there while it is open. */
function menu(words, content) {
  const box = h("div", { class: "card" });
  const element = h("details", { class: "menu", ontoggle: () => fill(box, element.open && content()) }, h("summary", null, words), box);
  return element;
}

/** All columns; those with `always` are there whatever is chosen. */
function columnsOf({ all, isSelected, select, filterBy }) {
  const filter = (name, value, text = value) => value && h("button", { type: "button", class: "quiet", title: `Only runs with ${name} ${value}`, onclick: () => filterBy(name, value) }, text);
  return [
    { name: "select", head: all, always: true, cell: (run) => h("input", { type: "checkbox", "aria-label": `Select ${brief(run.task, 60) || run.id}`, checked: isSelected(run.id), onchange: (event) => select(run.id, event.target.checked) }) },
    { name: "state", head: "State", always: true, cell: stateCell },
    { name: "task", head: "Task", always: true, cell: (run) => h("a", { href: `#/run/${encodeURIComponent(run.id)}`, title: run.task }, withCode(brief(run.task, 120) || run.id)) },
    { name: "agent", head: "Agent", cell: (run) => filter("agent", run.agent) },
    { name: "user", head: "User", cell: (run) => filter("user", run.user) },
    { name: "session", head: "Session", cell: (run) => filter("session", run.session) },
    { name: "labels", head: "Labels", cell: (run) => Object.entries(run.labels ?? {}).map(([name, value]) => filter("label", `${name}=${value}`)) },
    { name: "error", head: "Error", cell: (run) => run.error && h("span", { title: errorText(run.error) }, brief(errorText(run.error), 80)) },
    { name: "step", head: "Step", cell: (run) => run.step || "" },
    { name: "tokens", head: "Tokens", cell: (run) => count(run.usage.input_tokens + run.usage.output_tokens) },
    { name: "cost", head: "Cost", cell: (run) => cost(run.usage.cost) },
    { name: "took", head: "Took", cell: (run) => duration((run.ended_at ?? Date.now() / 1000) - run.started_at) },
    { name: "began", head: "Began", cell: (run) => clock(run.started_at) },
    { name: "ended", head: "Ended", cell: (run) => clock(run.ended_at) },
  ];
}

function stateCell(run) {
  const waits = run.waiting_for && run.waiting_for !== "approval" ? ` for ${run.waiting_for}` : "";
  return h("span", null, badge(runMark(run.state, run.approvals), run.state.replaceAll("_", " ") + waits),
    run.approvals > 0 && h("a", { class: "badge held", href: `#/approvals?tree=${encodeURIComponent(run.id)}` }, `${run.approvals} to approve`));
}
