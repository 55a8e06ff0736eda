// One run, live or past: the tree of all runs below it with the time that each part took, and what is in each part.

import { parseWritten, writeJson } from "../exact_json.js";
import { get, post, runPath, withQuery } from "../http/api.js";
import { followRun } from "../http/follow.js";
import { rowState, rowTimes, runMark, visibleRows } from "../state/rows.js";
import { applyEvents, emptyTree, isOver, totals } from "../state/run_tree.js";
import { errorText, faultLines, purposeText } from "../state/texts.js";
import { alert, badge, button, dialog, field, fill, h, toast } from "../view/element.js";
import { argumentsText, brief, clock, cost, count, duration, lostText } from "../view/format.js";
import { VirtualTree } from "../view/virtual_tree.js";
import { RowDetail } from "./row_detail.js";

const FOLLOWED_SECONDS = 5; // what is older is history: one reads it from its beginning
const WRITING_CHARACTERS = 50; // of an answer that grows, its end
const LINK_TEXT = { live: "live", resting: "paused", ended: "" };

/** Shows the page; returns what ends it. */
export function runPage(main, { parts: [id], query, setQuery }) {
  let tree = emptyTree();
  let frame = null;
  let link = "";
  let linkText = "loading …";
  let dashboard = ""; // where the trace is looked at, if the gateway knows
  let queued = null; // what is known of a run that its agent has not begun
  const toggled = new Map();
  const detail = new RowDetail({ fork: forkDialog, changed: schedule });
  const view = new VirtualTree({
    label: "Runs, steps and calls", draw: drawRow, signature: signatureOf,
    onSelect: (row) => {
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
  const head = h("header", { class: "run-head" });
  const actions = h("div", { class: "actions" });
  const problem = h("div", null);
  const axis = h("div", { class: "axis", "aria-hidden": "true" });
  fill(main, h("div", { class: "run" }, head, actions, problem,
    h("div", { class: "split" }, h("section", { class: "left", "aria-label": "Tree" }, axis, view.element), detail.element)));

  let span = { begin: 0, end: 1 };
  let shownActions = "";

  const stop = followRun(runPath(id), {
    onEvents: (events) => {
      tree = applyEvents(tree, events);
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
    if (!tree.root && !queued && link === "live") lookUp();
    if (tree.root && !isOver(tree.runs.get(tree.root))) schedule();
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
    const root = tree.runs.get(tree.root);
    drawHead(root);
    if (!root) return;
    const end = isOver(root) ? Math.max(root.endedAt, tree.last) : Math.max(tree.last, Date.now() / 1000);
    span = { begin: root.startedAt, end: Math.max(end, root.startedAt + 0.001) };
    fill(axis, [0, 0.25, 0.5, 0.75].map((part) => h("span", null, duration((span.end - span.begin) * part))));
    view.following = !isOver(root) && Date.now() / 1000 - tree.last < FOLLOWED_SECONDS;
    const rows = visibleRows(tree, toggled);
    view.show(rows);
    const chosen = rows.find((row) => row.key === view.selected);
    if (chosen) detail.show(chosen, tree);
  }

  function drawHead(root) {
    if (!root) {
      const title = queued?.agent ? [h("span", { class: "agent" }, queued.agent), " ", brief(queued.task, 400)] : ["Run ", h("code", null, id)];
      fill(head, h("h1", { title: queued?.task }, title), h("p", { class: "meta" },
        h("span", null, link === "live" ? "in the inbox of its agent: nothing has happened yet" : linkText), " ",
        queued?.started_at && h("span", null, clock(queued.started_at))));
      drawProblems(faultLines(tree, id));
      drawActions(null);
      return;
    }
    const sum = totals(tree, root.id);
    const took = duration((root.endedAt ?? Date.now() / 1000) - root.startedAt);
    document.title = `${root.agent}: ${brief(root.task, 40)} – Cadre`;
    const facts = [
      badge(runMark(root.state, root.held || sum.held), root.state.replaceAll("_", " ")),
      took, `${count(sum.input + sum.output)} tokens`, cost(sum.cost) && `cost ${cost(sum.cost)}`,
      sum.runs > 1 && `${sum.runs} runs`, `${sum.calls} model calls`,
      root.model && `model ${root.model}`, clock(root.startedAt),
      root.parent && h("a", { href: `#/run/${encodeURIComponent(root.parent)}` }, "run above"),
      h("a", { href: `${runPath(id)}/trace?format=html`, target: "_blank", rel: "noopener" }, "trace"),
      dashboard && h("a", { href: dashboard, target: "_blank", rel: "noopener" }, "in the tracing dashboard"),
      !isOver(root) && h("span", { class: link === "live" ? "live" : "bad", role: "status" }, linkText),
    ].filter(Boolean);
    const title = brief(root.task, 400) || id;
    const signature = writeJson([title, facts.map((one) => one.textContent ?? one), root.agent]);
    if (head.dataset.signature !== signature) {
      head.dataset.signature = signature;
      fill(head, h("h1", { title: root.task }, h("span", { class: "agent" }, root.agent), " ", title), h("p", { class: "meta" }, facts.map((one) => h("span", null, one))));
    }
    drawProblems([root.error && isOver(root) ? errorText(root.error) : "", ...missingLines(root), ...faultLines(tree, id)]);
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
    const names = new Set([...tree.runs.values()].filter((run) => !isOver(run)).flatMap((run) => run.missing));
    return names.size ? [`Nobody offers ${[...names].join(", ")}: start it with \`cadre agent FILE\` or \`cadre tools FILE\`.`] : [];
  }

  function drawActions(root) {
    const signals = [...tree.runs.values()].filter((run) => run.awaits?.signal && !isOver(run));
    const held = root ? totals(tree, root.id).held : 0;
    const key = writeJson([root && isOver(root), root?.state, root?.cancelling, signals.map((run) => [run.id, run.awaits.signal]), held]);
    if (key === shownActions) return;
    shownActions = key;
    const going = !root || !isOver(root);
    fill(actions,
      held > 0 && h("button", { type: "button", class: "primary", onclick: nextHeld }, `${held} to approve`),
      going && button("Send message", tellDialog),
      signals.map((run) => button(`Send signal ${run.awaits.signal}`, () => signalDialog(run))),
      going && !root?.cancelling && h("button", { type: "button", class: "danger", onclick: cancelDialog }, "Cancel"),
      root && !going && ["max_steps_error", "error"].includes(root.state) && button("Continue", async () => go(await post(`${runPath(id)}/continue`))),
      root && button("Again", async () => {
        const { startRun } = await import("./runs.js");
        await startRun({ agent: root.agent, task: root.task, inputs: root.inputs });
      }),
      root && button("Compare", async () => {
        const { chooseOther } = await import("./compare.js");
        await chooseOther(id, root.agent);
      }),
      root && button("Files", filesDialog));
  }

  function go(started) {
    location.hash = `#/run/${encodeURIComponent(started.id)}`;
  }

  /** Opens all above the next held call and selects it. */
  function nextHeld() {
    for (const run of tree.runs.values()) {
      const step = run.steps.find((one) => one.items.some((item) => item.state === "held"));
      if (!step) continue;
      for (let above = run; above; above = tree.runs.get(above.parent)) {
        toggled.set(`run:${above.id}`, true);
        const call = tree.runs.get(above.parent)?.steps.find((one) => one.items.some((item) => item.id === above.id));
        if (call) toggled.set(`step:${above.parent}:${call.number}`, true);
      }
      toggled.set(`step:${run.id}:${step.number}`, true);
      paint();
      view.select(`item:${run.id}:${step.number}:${step.items.findIndex((item) => item.state === "held")}`, { scroll: true });
      detail.element.scrollIntoView?.({ block: "nearest" });
      return;
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
    dialog(`Signal ${run.awaits.signal}`, [field("Payload", h("textarea", { name: "payload", rows: 4, class: "code" }), "any JSON value; empty: null")], "Send", async (data) => {
      const text = data.get("payload").trim();
      await post(`${runPath(run.id)}/signals/${encodeURIComponent(run.awaits.signal)}`, text ? parseWritten(text) : null);
      toast("sent");
    });
  }

  function forkDialog(run, number) {
    const calls = run.steps.filter((step) => step.number < number).flatMap((step) => step.items.filter((item) => item.type === "call" && item.endedAt !== null));
    dialog(`Fork at step ${number}`, [
      h("p", null, `A new run begins with step ${number} of ${run.agent}; the steps before it are its memory.`),
      field("Task", h("textarea", { name: "task", rows: 5, value: run.task })),
      field("Steps at most", h("input", { name: "max_steps", type: "number", min: 1 }), "left out: as before"),
      calls.length > 0 && h("details", null, h("summary", null, "Other outcomes of the calls before"), calls.map((call) =>
        field(`${call.name} (${argumentsText(call.arguments, 60)})`, h("textarea", { name: `outcome ${call.id}`, rows: 2, placeholder: brief(call.result ?? call.error?.message ?? "") }), "left out: as it was"))),
    ], "Fork", async (data) => {
      const body = { at: number };
      const outcomes = calls.map((call) => [call.id, data.get(`outcome ${call.id}`)]).filter(([, text]) => text);
      if (outcomes.length) body.observations = Object.fromEntries(outcomes);
      if (data.get("task") !== run.task) body.task = data.get("task");
      if (data.get("max_steps")) body.max_steps = Number(data.get("max_steps"));
      go(await post(`${runPath(run.id)}/fork`, body));
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
  function drawRow(row) {
    const { name, remark } = rowText(row);
    const state = rowState(row);
    const times = rowTimes(row);
    const twist = h("span", { class: row.expandable ? `twist ${row.expanded ? "down" : ""}` : "twist none", "aria-hidden": "true" });
    const label = h("span", { class: "label" }, twist,
      h("span", state === "note" ? { class: "mark note" } : { class: `mark ${state}`, role: "img", "aria-label": state }),
      h("span", { class: `name ${row.type} ${row.item?.type ?? ""}` }, name), h("span", { class: "remark" }, remark));
    label.style.setProperty("padding-inline-start", `${Math.min(row.depth, 12) * 14}px`);
    return [label, state === "note" ? h("span", { class: "lane" }) : lane(times, state, row.item?.askedAt ? "person" : "queue")];
  }

  function lane({ start, work, end }, state, before) {
    const whole = span.end - span.begin;
    const at = (time) => `${Math.min(Math.max((time - span.begin) / whole, 0), 1) * 100}%`;
    const wide = (from, to) => `${(Math.max(to - from, 0) / whole) * 100}%`;
    const until = end ?? span.end;
    const begun = work ?? until;
    const queue = h("span", { class: `bar ${before}` });
    Object.assign(queue.style, { left: at(start), width: wide(start, begun) });
    const bar = h("span", { class: `bar ${state}` });
    Object.assign(bar.style, { left: at(begun), width: wide(begun, until) });
    const waited = begun - start > 0.05 ? `, ${duration(begun - start)} before it began` : "";
    return h("span", { class: "lane", title: `${duration(until - start)}${waited}` }, queue, work !== null && bar,
      h("span", { class: "took" }, duration(until - start)));
  }

  function signatureOf(row) {
    const times = rowTimes(row);
    const moving = times.end === null ? Math.floor(span.end) : "";
    const { name, remark } = rowText(row);
    return `${name}|${remark}|${rowState(row)}|${times.start}|${times.work}|${times.end}|${moving}|${span.end - span.begin}`;
  }

  schedule();
  return () => {
    stop();
    clearInterval(ticking);
    cancelAnimationFrame(frame);
    view.close();
    detail.close();
  };
}

/** Name and remark of a row in a few words. */
function rowText({ type, run, step, item, call }) {
  if (type === "run") {
    const ended = isOver(run) ? (run.error ? errorText(run.error) : brief(run.output ?? "", 200)) : run.doing || brief(run.task, 200);
    return { name: run.agent, remark: call?.state === "held" ? "waits for approval" : ended };
  }
  if (type === "step") return { name: step.number ? `Step ${step.number}` : "Before the first step", remark: step.error ? errorText(step.error) : step.name };
  switch (item.type) {
    case "model": {
      const name = purposeText(item.purpose) + (item.attempt > 1 ? `, try ${item.attempt}` : "");
      if (item.error) return { name, remark: errorText(item.error) };
      const text = item.state === "open" ? item.text.slice(-WRITING_CHARACTERS) : item.text;
      return { name, remark: brief(text || (item.calls ?? []).map((one) => one.name).join(", "), 200) };
    }
    case "code":
      return { name: "code", remark: item.error ? errorText(item.error) : brief(item.code, 200) };
    case "call":
      return { name: item.name || "question", remark: item.error ? errorText(item.error) : item.state === "held" ? `waits for approval: ${item.hold.reason}` : argumentsText(item.arguments) };
    default:
      return { name: item.name, remark: item.text || brief(Object.fromEntries(Object.entries(item.event).filter(([key]) => key !== "type")), 200) };
  }
}

