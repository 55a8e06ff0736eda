// One run, live or past: the tree of all runs below it with the time that each part took, and what is in each part.

import { parseWritten, writeJson } from "../exact_json.js";
import { eventsOf, get, post, runPath, urlOf, withQuery } from "../http/api.js";
import { followRun } from "../http/follow.js";
import {
  emptyTree, eventsKey, faultLines, heldBelow, isOver, markOf, numberOf, rootOf, rowsBelow, rowTimes, spentOf, stateOf, takeEvents, totals, visibleRows,
} from "../state/run_tree.js";
import { allRows, dearestBelow, longestChild, matches, nextError } from "../state/waterfall.js";
import { alert, badge, button, dialog, field, fill, h, toast, withCode } from "../view/element.js";
import { brief, clock, cost, count, duration, lostText, spentText } from "../view/format.js";
import { onKeys } from "../view/keys.js";
import { splitter } from "../view/splitter.js";
import { VirtualTree } from "../view/virtual_tree.js";
import { Waterfall } from "../view/waterfall.js";
import { RowDetail } from "./row_detail.js";

const FOLLOWED_SECONDS = 5; // what is older is history: one reads it from its beginning
const WRITING_CHARACTERS = 50; // of an answer that grows, its end
const LINK_TEXT = { live: "live", resting: "paused", ended: "" };

/** Shows the page; returns what ends it. */
export function runPage(main, { parts: [id], query, setQuery }) {
  const tree = emptyTree(id);
  let last = 0; // time of the newest event, by the clock of the page
  let frame = null;
  let link = "";
  let linkText = "loading …";
  let dashboard = ""; // where the trace is looked at, if the gateway knows
  let queued = null; // what is known of a run that its agent has not begun
  let stopKeys = () => {};
  const toggled = new Map();
  const detail = new RowDetail({ fork: forkDialog, changed: schedule });
  const view = new VirtualTree({
    label: "Runs, steps and calls", draw: drawRow, signature: signatureOf,
    onSelect: (row) => {
      linked = null;
      setQuery({ at: row.key });
      detail.show(row, tree);
    },
    onToggle: (row) => {
      toggled.set(row.key, !row.expanded);
      paint();
    },
  });
  view.selected = query.get("at") || `run:${id}`;
  view.following = false;
  let linked = query.get("at"); // the row that a link leads to, until it is there
  const waterfall = new Waterfall(view.element, schedule);
  const head = h("header", { class: "run-head" });
  const actions = h("div", { class: "actions" });
  const problem = h("div", null);
  const split = h("div", { class: "split" });
  fill(split, h("section", { class: "left", "aria-label": "Tree" }, treeTools(), waterfall.element), detail.element,
    splitter(split, { name: "tree", label: "Width of the tree", usual: 60, least: 25, most: 80 }));
  fill(main, h("div", { class: "run" }, head, actions, problem, split));
  let shownActions = "";

  const stop = followRun(runPath(id), {
    onEvents: (events) => {
      takeEvents(tree, events);
      last = Math.max(last, ...events.flatMap(({ data }) => (data?.rows ?? []).map((row) => Math.max(row.asked_at ?? 0, row.began_at ?? 0, row.ended_at ?? 0))));
      schedule();
    },
    onLink: (state, told) => {
      link = state;
      if (state === "live") dashboard = told.get("Cadre-Trace-Url") ?? dashboard;
      linkText = state === "lost" ? lostText(told) : LINK_TEXT[state];
      schedule();
    },
    onRefused: (error) => {
      const words = error.code === "unknown-run" ? "There is no such run; it may have been erased." : error.message;
      fill(main, h("h1", null, "Run ", h("code", null, id)), alert(words));
    },
  });
  // What is under way grows although nothing happens.
  const ticking = setInterval(() => {
    const root = rootOf(tree);
    if (!root && !queued && link === "live") lookUp();
    if (root && !isOver(root)) schedule();
  }, 1000);

  /** Asks what the events tell only once there are some. */
  async function lookUp() {
    queued = {};
    try {
      queued = await get(withQuery(runPath(id), { limit: 1 }));
      schedule();
    } catch (error) {
      toast(error.message, true);
    }
  }

  function schedule() {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      paint();
    });
  }

  function paint() {
    const root = rootOf(tree);
    drawHead(root);
    if (!root) return;
    const end = Math.max(last, isOver(root) ? root.ended_at : Date.now() / 1000);
    waterfall.setWhole({ begin: root.asked_at, end: Math.max(end, root.asked_at + 0.001) });
    if (linked && tree.rows.has(linked)) {
      const key = linked;
      linked = null;
      reveal(key);
      return;
    }
    view.following = !isOver(root) && Date.now() / 1000 - last < FOLLOWED_SECONDS;
    const sum = spentOf(tree, tree.root);
    waterfall.names.textContent = sum.cost > 0 ? "cost" : sum.tokens > 0 ? "tokens" : "";
    const rows = visibleRows(tree, toggled);
    view.show(rows);
    const chosen = rows.find((row) => row.key === view.selected);
    if (chosen) detail.show(chosen, tree);
  }

  function drawHead(root) {
    if (!root) {
      const title = queued?.agent ? [h("span", { class: "agent" }, queued.agent), " ", withCode(brief(queued.task, 400))] : ["Run ", h("code", null, id)];
      fill(head, h("h1", { title: queued?.task }, title), h("p", { class: "meta" },
        h("span", null, link === "live" ? "in the inbox of its agent: nothing has happened yet" : linkText), " ",
        queued?.started_at && h("span", null, clock(queued.started_at))));
      drawProblems(faultLines(tree));
      drawActions(null);
      return;
    }
    const sum = totals(tree);
    const took = duration((root.ended_at || Date.now() / 1000) - root.began_at);
    const { model, parent, forks } = root.facts;
    document.title = `${root.name}: ${brief(root.brief, 40)} – Cadre`;
    const facts = [
      badge(tree.held.size ? "held" : markOf(tree, root), stateOf(root).replaceAll("_", " ")),
      took, `${count(sum.input + sum.output)} tokens`, cost(sum.cost) && `cost ${cost(sum.cost)}`,
      sum.runs > 1 && `${sum.runs} runs`, `${sum.calls} model calls`,
      model && `model ${model}`, clock(root.began_at),
      parent && h("a", { href: `#/run/${encodeURIComponent(parent)}` }, "run above"),
      forks && h("a", { href: `#/run/${encodeURIComponent(forks.run)}?at=${encodeURIComponent(`step:${forks.run}:${forks.at}`)}` }, `forked at step ${forks.at}`),
      h("a", { href: urlOf(`${runPath(id)}/trace?format=html`), target: "_blank", rel: "noopener" }, "trace"),
      dashboard && h("a", { href: dashboard, target: "_blank", rel: "noopener" }, "in the tracing dashboard"),
      !isOver(root) && h("span", { class: link === "live" ? "live" : "bad", role: "status" }, linkText),
    ].filter(Boolean);
    const title = root.brief || id;
    const signature = writeJson([title, facts.map((one) => one.textContent ?? one), root.name]);
    if (head.dataset.signature !== signature) {
      head.dataset.signature = signature;
      fill(head, h("h1", null, h("span", { class: "agent" }, root.name), " ", withCode(title)), h("p", { class: "meta" }, facts.map((one) => h("span", null, one))));
    }
    drawProblems([root.error, ...missingLines(root), ...faultLines(tree)]);
    drawActions(root);
  }

  function drawProblems(lines) {
    const signature = writeJson(lines);
    // Only when they change: a screen reader reads an alert again each time that it is put in.
    if (problem.dataset.lines === signature) return;
    problem.dataset.lines = signature;
    fill(problem, lines.filter(Boolean).map((line) => alert(line)));
  }

  function missingLines(root) {
    if (isOver(root)) return [];
    return [...new Set([...tree.runs.values()].filter((run) => !isOver(run)).flatMap((run) => run.facts.missing ?? []))];
  }

  function drawActions(root) {
    const signals = [...tree.runs.values()].filter((run) => run.waits?.signal && !isOver(run));
    const held = tree.held.size;
    const cancelling = root?.facts.cancelling;
    const key = writeJson([root && isOver(root), root?.state, cancelling, signals.map(({ run, waits }) => [run, waits.signal]), held]);
    if (key === shownActions) return;
    shownActions = key;
    const going = !root || !isOver(root);
    fill(actions,
      held > 0 && h("button", { type: "button", class: "primary", onclick: nextHeld }, `${held} to approve`),
      going && button("Send message", tellDialog),
      signals.map((run) => button(`Send signal ${run.waits.signal}`, () => signalDialog(run))),
      going && !cancelling && h("button", { type: "button", class: "danger", onclick: cancelDialog }, "Cancel"),
      root && !going && ["max_steps_error", "error"].includes(stateOf(root)) && button("Resume", async () => go(await post(`${runPath(id)}/resume`))),
      root && button("Again", async () => {
        const { startRun } = await import("./new_run.js");
        const { task, inputs, max_steps: steps, budget, origin } = await taskOf(root);
        await startRun({ agent: root.name, task, inputs, max_steps: steps, budget, user: origin?.user });
      }),
      root && button("Compare", async () => {
        const { chooseOther } = await import("./compare.js");
        await chooseOther(id, root.name);
      }),
      root && button("Files", filesDialog));
  }

  function go(started) {
    location.hash = `#/run/${encodeURIComponent(started.id)}`;
  }

  function nextHeld() {
    const [key] = tree.held;
    reveal(key);
    detail.element.scrollIntoView?.({ block: "nearest" });
  }

  /** Opens all above the row, selects it and scrolls to it. The run that a call has started stands in the call's place. */
  function reveal(key) {
    const started = key.startsWith("call:") ? `run:${key.slice("call:".length)}` : key;
    const row = tree.rows.get(started) ?? tree.rows.get(key);
    if (row?.is_minor) toggled.set(eventsKey(row.parent), true);
    for (let above = row?.parent; above; above = tree.rows.get(above)?.parent) toggled.set(above, true);
    paint();
    view.select(row?.key ?? key, { scroll: true });
  }

  function jump(key, without) {
    if (key === undefined) toast(without);
    else reveal(key);
  }

  /** Search, jumps, a link to the selected row, and what part of the time is shown. */
  function treeTools() {
    const search = h("input", {
      type: "search", placeholder: "Search the tree", "aria-label": "Search the tree", oninput: () => find(0),
      onkeydown: (event) => {
        if (event.key === "Enter") find(event.shiftKey ? -1 : 1);
        else if (event.key === "Escape") view.element.focus();
        else return;
        event.preventDefault();
      },
    });
    const found = h("span", { class: "hint", role: "status" });
    /** Goes so many finds further on; with 0 to the selected one, or the first. */
    function find(by) {
      const keys = matches(allRows(tree), search.value);
      const at = keys.indexOf(view.selected);
      const place = at < 0 ? (by < 0 ? keys.length - 1 : 0) : (at + by + keys.length) % keys.length;
      found.textContent = search.value.trim() && (keys.length ? `${place + 1} of ${keys.length}` : "not found");
      if (keys.length) reveal(keys[place]);
    }
    const error = () => jump(nextError(allRows(tree), view.selected), "Nothing has failed in this run.");
    const longest = () => jump(longestChild(allRows(tree), view.selected, Date.now() / 1000), "Nothing lies below this row.");
    const dearest = () => {
      const has = rootOf(tree) && spentOf(tree, tree.root).cost > 0 ? "cost" : "tokens";
      jump(dearestBelow(allRows(tree), view.selected, (key) => spentOf(tree, key)[has]), "Nothing was spent below this row.");
    };
    const tool = (words, work, title, label) => h("button", { type: "button", onclick: work, title, "aria-label": label }, words);
    stopKeys = onKeys({
      "/": () => search.focus(), n: error, l: longest, d: dearest, c: copyLink, "+": () => waterfall.zoom(true), "-": () => waterfall.zoom(false),
      ",": () => waterfall.pan(-0.25), ".": () => waterfall.pan(0.25), 0: () => waterfall.showAll(),
    });
    return h("div", { class: "tools", role: "group", "aria-label": "Find in the tree" }, search, found,
      tool("Next error", error, "Next error (n)"), tool("Longest child", longest, "The longest row below the selected one (l)"),
      tool("Dearest", dearest, "Where most was spent below the selected row (d)"),
      tool("Copy link", copyLink, "Copy a link to the selected row (c)"),
      h("span", { class: "zoom", role: "group", "aria-label": "Time" },
        tool("−", () => waterfall.zoom(false), "Show more time (-)", "Show more time"), tool("+", () => waterfall.zoom(true), "Show less time (+)", "Show less time"),
        tool("‹", () => waterfall.pan(-0.25), "Earlier (,)", "Earlier"), tool("›", () => waterfall.pan(0.25), "Later (.)", "Later"),
        tool("All", () => waterfall.showAll(), "Show the whole time (0)", "Show the whole time")));
  }

  async function copyLink() {
    const link = `${location.href.split("#")[0]}#/run/${encodeURIComponent(id)}?at=${encodeURIComponent(view.selected)}`;
    try {
      await navigator.clipboard.writeText(link);
      toast("The link is copied.");
    } catch {
      // Without https a page may not write to the clipboard.
      const box = dialog("Link to the row", field("Copy it from here", h("input", { value: link, readOnly: true, class: "code" })));
      box.querySelector("input").select();
    }
  }

  function cancelDialog() {
    dialog("Cancel the run?", [
      h("p", null, "It ends, with all runs below it, once it has made up for what it did."),
      field("Reason", h("input", { name: "reason" })),
      field("End it at once", h("input", { name: "now", type: "checkbox" }), "nothing is made up for; the run's error names what was not"),
    ], "Cancel the run", (data) => post(`${runPath(id)}/cancel`, { reason: data.get("reason"), now: data.get("now") !== null }));
  }

  function tellDialog() {
    dialog("Message to the run", [
      field("Text", h("textarea", { name: "text", rows: 4, required: true })),
      field("When it is read", h("select", { name: "mode" },
        h("option", { value: "append" }, "with the next model call"),
        h("option", { value: "next" }, "before calls that have not begun"),
        h("option", { value: "interrupt" }, "at once"))),
    ], "Send", async (data) => {
      await post(`${runPath(id)}/messages`, { text: data.get("text"), mode: data.get("mode") });
      toast("sent");
    });
  }

  function signalDialog(run) {
    dialog(`Signal ${run.waits.signal}`, [field("Payload", h("textarea", { name: "payload", rows: 4, class: "code" }), "any JSON value; empty: null")], "Send", async (data) => {
      const text = data.get("payload").trim();
      await post(`${runPath(run.run)}/signals/${encodeURIComponent(run.waits.signal)}`, text ? parseWritten(text) : null);
      toast("sent");
    });
  }

  async function forkDialog(id, step) {
    const run = tree.runs.get(id);
    const number = numberOf(step);
    const before = rowsBelow(tree, run.key).filter((one) => numberOf(one) < number);
    const calls = before.flatMap((one) => rowsBelow(tree, one.key)).filter((row) => row.kind === "call" && isOver(row));
    const { task } = await taskOf(run);
    dialog(`Fork at step ${number}`, [
      h("p", null, `A new run begins with step ${number} of ${run.name}; the steps before it are its memory.`),
      field("Task", h("textarea", { name: "task", rows: 5, value: task })),
      field("Steps at most", h("input", { name: "max_steps", type: "number", min: 1 }), "left out: as before"),
      calls.length > 0 && h("details", null, h("summary", null, "Other outcomes of the calls before"), calls.map((call) =>
        field(`${call.name} ${brief(call.brief, 60)}`, h("textarea", { name: `outcome ${call.key.slice("call:".length)}`, rows: 2, placeholder: brief(call.error || call.result) }), "left out: as it was"))),
    ], "Fork", async (data) => {
      const body = { at: number };
      const outcomes = calls.map(({ key }) => key.slice("call:".length)).map((call) => [call, data.get(`outcome ${call}`)]).filter(([, text]) => text);
      if (outcomes.length) body.observations = Object.fromEntries(outcomes);
      if (data.get("task") !== task) body.task = data.get("task");
      if (data.get("max_steps")) body.max_steps = Number(data.get("max_steps"));
      go(await post(`${runPath(id)}/fork`, body));
    });
  }

  async function filesDialog() {
    const { showFile } = await import("../view/value.js");
    const { files } = await get(`${runPath(id)}/files`);
    const list = files.map((file) => h("li", null, h("code", null, file.path), " ", showFile({ ...file, name: file.path.split("/").pop() })));
    const box = dialog("Files of the run", [files.length ? h("ul", null, list) : h("p", null, "The workspace has no files.")], "OK", async () => {});
    box.classList.add("wide");
  }

  /** A row: twist, state, name, remark on the left; a bar with its time on the right. */
  function drawRow(shown) {
    const { row, expandable, expanded, depth } = shown;
    const state = markOf(tree, row);
    const twist = h("span", { class: expandable ? `twist ${expanded ? "down" : ""}` : "twist none", "aria-hidden": "true" });
    const label = h("span", { class: "label" }, twist,
      h("span", state === "note" ? { class: "mark note" } : { class: `mark ${state}`, role: "img", "aria-label": state }),
      row.kind === "note" && !row.is_minor ? null : h("span", { class: `name ${row.kind}` }, row.name), h("span", { class: "remark" }, withCode(remarkOf(shown))), spentMark(row.key));
    label.style.setProperty("padding-inline-start", `${Math.min(depth, 12) * 14}px`);
    return [label, state === "note" ? h("span", { class: "lane" }) : waterfall.lane(rowTimes(shown), state, row.kind === "call" && row.remark ? "person" : "queue")];
  }

  /** Draw the cost of the row and all below it. */
  function spentMark(key) {
    const spent = spentOf(tree, key);
    const words = spentText(spent);
    return words && h("span", { class: "spent", title: `${cost(spent.cost) && `cost ${cost(spent.cost)}, `}${count(spent.tokens)} tokens, with what is below` }, words);
  }

  /** What the row says, of an answer that grows its end. */
  function remarkOf({ row, call }) {
    const draft = tree.drafts.get(row.key);
    if (draft) return brief(draft.text.slice(-WRITING_CHARACTERS));
    if (call?.state === "held") return call.text;
    const held = row.kind === "run" && heldBelow(tree, row);
    if (held && held.run !== row.run) return `${tree.runs.get(held.run)?.name ?? "a member"} waits for a person: ${held.name}`;
    return row.kind === "note" ? row.brief || row.text : row.text;
  }

  function signatureOf(shown) {
    const times = rowTimes(shown);
    const moving = times.end === null ? Math.floor(waterfall.whole.end) : "";
    return `${shown.row.name}|${remarkOf(shown)}|${spentText(spentOf(tree, shown.key))}|${markOf(tree, shown.row)}|${times.start}|${times.work}|${times.end}|${moving}|${waterfall.signature}`;
  }

  schedule();
  return () => {
    stop();
    clearInterval(ticking);
    cancelAnimationFrame(frame);
    stopKeys();
    waterfall.close();
    view.close();
    detail.close();
  };
}

/** The task of a run, whole. */
async function taskOf(run) {
  const [accepted] = await eventsOf(run);
  return { inputs: {}, ...accepted.task };
}
