// The tree of runs as the rows that are to be seen: runs, their steps, and what happened in each. Pure.

import { isOver } from "./run_tree.js";

const OPEN_RUNS = 60; // a tree of more runs begins with all but the first closed

/**
 * The visible rows, in order. `toggled` has by key what a person opened (true) or closed (false). A member's call and
 * the run that it started are one row.
 */
export function visibleRows(tree, toggled) {
  const rows = [];
  const root = tree.runs.get(tree.root);
  if (!root) return rows;
  const many = tree.runs.size > OPEN_RUNS;
  const seen = new Set();
  // By hand and not by recursion: a chain of delegations may be deep.
  const stack = [{ run: root, call: null, depth: 0 }];
  const push = (key, depth, byDefault, expandable, fields) => {
    const expanded = expandable && (toggled.get(key) ?? byDefault);
    rows.push({ key, depth, expanded, expandable, ...fields });
    return expanded;
  };
  while (stack.length) {
    const { run, step, item, call, depth } = stack.pop();
    const below = [];
    if (run && !step) {
      seen.add(run.id);
      const expanded = push(`run:${run.id}`, depth, !many || depth === 0, run.steps.length > 0, { type: "run", run, call });
      if (expanded) for (const one of run.steps) below.push({ run, step: one, depth: depth + 1 });
    } else if (!item) {
      const key = `step:${run.id}:${step.number}`;
      const expanded = push(key, depth, true, step.items.length > 0, { type: "step", run, step });
      if (expanded) {
        step.items.forEach((one, index) => {
          const child = one.type === "call" ? tree.runs.get(one.id) : undefined;
          if (child) below.push({ run: child, call: one, depth: depth + 1 });
          else below.push({ run, step, item: one, key: index, depth: depth + 1 });
        });
      }
    } else {
      const at = step.items.indexOf(item);
      push(`item:${run.id}:${step.number}:${at}`, depth, false, false, { type: "item", run, step, item });
    }
    for (const one of below.reverse()) stack.push(one);
  }
  return rows;
}

/** When the row began to be owed, when work on it began, and when it ended; null for what has not come. */
export function rowTimes(row) {
  switch (row.type) {
    case "run": {
      const start = row.call?.openedAt ?? row.run.startedAt;
      return { start, work: row.run.startedAt ?? start, end: row.run.endedAt };
    }
    case "step":
      return { start: row.step.startedAt, work: row.step.startedAt, end: row.step.endedAt ?? (isOver(row.run) ? row.run.endedAt : null) };
    default:
      return { start: row.item.askedAt ?? row.item.openedAt, work: row.item.startedAt ?? (row.item.state === "held" ? null : row.item.decidedAt ?? row.item.openedAt), end: row.item.endedAt };
  }
}

/** `ok`, `failed`, `held`, `waiting`, `open` or `dropped`, whatever kind of row it is. */
export function rowState(row) {
  if (row.type === "item") return row.item.type === "note" ? "note" : row.item.state === "deferred" ? "failed" : row.item.state;
  if (row.type === "step") {
    if (row.step.error) return "failed";
    if (row.step.items.some((item) => item.state === "held")) return "held";
    return row.step.endedAt !== null || isOver(row.run) ? "ok" : "open";
  }
  return runMark(row.run.state, row.run.held);
}

/** The mark of a run by its state in the API. */
export function runMark(state, held = 0) {
  if (state === "running") return "open";
  if (state === "queued") return "waiting";
  if (state === "waiting") return held ? "held" : "waiting";
  return { success: "ok", cancelled: "dropped" }[state] ?? "failed";
}
