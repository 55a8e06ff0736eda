// The rows of a followed run, as the gateway sends them, and the answers that its models are writing. No clock, no DOM.
// Times are Unix seconds, 0 for what has not come.

const OPEN_RUNS = 60; // a tree of more runs begins with all but the first closed
const DEFAULTS = {
  parent: "", name: "", state: "open", text: "", words: "", remark: "", asked_at: 0, began_at: 0, ended_at: 0, is_question: false,
  usage: null, waits: null, brief: "", result: "", error: "", lines: [], is_minor: false, facts: null, asked_for: null, events: [], seq: 0,
};

/** The tree of the run `id` before the first event. */
export function emptyTree(id) {
  return {
    root: `run:${id}`, rows: new Map(), runs: new Map(), // by key, and those of runs by run
    below: new Map(), // by key the keys of the rows that stand under it, in the order in which they began
    held: new Set(), // keys of calls that wait for a person
    asked: new Map(), drafts: new Map(), // by run the key of the model call that is open; by key what it has written
    worked: new Map(), // by run how many rows of work and notes were sent
    spent: null, // by key what a row and all below it have spent; null when it is to be summed up
    faults: [],
  };
}

/** Takes in events of the stream, each `{name, data}`, or a `fault` in place of data that could not be read. */
export function takeEvents(tree, events) {
  tree.spent = null;
  for (const { name, data, fault } of events) {
    try {
      if (fault) throw fault;
      if (name === "delta") write(tree, data);
      else if (name === "rows") for (const row of data.rows ?? []) put(tree, { ...DEFAULTS, ...row });
    } catch (error) {
      tree.faults.push(`${name}: ${error?.message ?? error}`);
    }
  }
}

function put(tree, row) {
  const { key, kind, run } = row;
  if (![key, kind, run].every((one) => typeof one === "string")) throw new TypeError("a row without its key");
  if (!tree.rows.has(key)) {
    tree.rows.set(key, row);
    const beside = tree.below.get(row.parent) ?? [];
    tree.below.set(row.parent, beside);
    let at = beside.length;
    while (at > 0 && isBefore(row, tree.rows.get(beside[at - 1]))) at -= 1;
    beside.splice(at, 0, key);
  }
  tree.rows.set(key, row);
  if (kind === "run") tree.runs.set(run, row);
  if (kind === "work" || kind === "note") tree.worked.set(run, (tree.worked.get(run) ?? 0) + 1);
  if (row.state === "held") tree.held.add(key);
  else tree.held.delete(key);
  if (kind !== "model") return;
  if (!row.ended_at) tree.asked.set(run, key);
  else {
    tree.drafts.delete(key);
    if (tree.asked.get(run) === key) tree.asked.delete(run);
  }
}

/** Whether the row began before another one under the same row. */
function isBefore({ events: [[n, place] = []] }, { events: [[otherN, otherPlace] = []] }) {
  return n < otherN || (n === otherN && place < otherPlace);
}

function write(tree, { run, step, purpose, attempt, seq, text }) {
  const key = tree.asked.get(run);
  const wanted = tree.rows.get(key)?.asked_for;
  if (wanted?.step !== step || wanted.purpose !== purpose || wanted.attempt !== attempt) return;
  const draft = tree.drafts.get(key) ?? { text: "", pieces: 0, gap: false };
  if (seq <= draft.pieces) return;
  tree.drafts.set(key, { text: draft.text + text, pieces: seq, gap: draft.gap || seq !== draft.pieces + 1 });
}

/** The row of the run that is followed; nothing before its first event. */
export const rootOf = (tree) => tree.rows.get(tree.root);

/** Whether what the row is about has ended. */
export const isOver = (row) => row.ended_at > 0;

/** The rows that stand under one, in the order in which they began. */
export const rowsBelow = (tree, key) => (tree.below.get(key) ?? []).map((one) => tree.rows.get(one));

/** The number of a step, from its key. */
export const numberOf = (step) => Number(step.key.split(":")[2]);

/** Sums over all runs. */
export function totals(tree) {
  const sum = { input: 0, output: 0, calls: 0, cost: 0, runs: tree.runs.size };
  for (const { usage } of tree.runs.values()) {
    sum.input += usage?.input_tokens ?? 0;
    sum.output += usage?.output_tokens ?? 0;
    sum.calls += usage?.model_calls ?? 0;
    sum.cost += usage?.cost ?? 0;
  }
  return sum;
}

/** Return the sum of the row `key` and all below it, as `{cost, tokens}`. */
export function spentOf(tree, key) {
  tree.spent ??= sumUp(tree);
  return tree.spent.get(key) ?? { cost: 0, tokens: 0 };
}

/** Return the sums by key. A run's usage contains that of its model calls, so these add to their steps alone. */
function sumUp(tree) {
  const sums = new Map();
  for (const row of tree.rows.values()) {
    if (!row.usage) continue;
    const { cost = 0, input_tokens: input = 0, output_tokens: output = 0 } = row.usage;
    for (let at = row; at && (row.kind === "run" || at.kind !== "run"); at = tree.rows.get(at.parent)) {
      const sum = sums.get(at.key) ?? { cost: 0, tokens: 0 };
      sums.set(at.key, { cost: sum.cost + cost, tokens: sum.tokens + input + output });
    }
  }
  return sums;
}

/** The key of the row that the minor notes under a row are folded in. */
export const eventsKey = (parent) => `events:${parent}`;

/** The minor notes under a row: they say nothing that other rows do not. */
export const minorNotes = (tree, parent) => rowsBelow(tree, parent).filter((row) => row.is_minor);

function eventsRow(tree, parent) {
  const notes = minorNotes(tree, parent.key);
  const [first] = notes;
  return { ...DEFAULTS, key: eventsKey(parent.key), parent: parent.key, run: parent.run, kind: "events", name: `${notes.length} ${notes.length === 1 ? "event" : "events"}`, state: "ok", asked_at: first.asked_at, began_at: first.asked_at, ended_at: notes.at(-1).ended_at };
}

/**
 * The visible rows, in order, as `{key, depth, expanded, expandable, row, call}`. `toggled` has by key what a person opened
 * (true) or closed (false). A member's call and the run that it started are one: the run, with its `call`. The minor notes
 * under a row are folded in a row of kind `events`, the last one under it.
 */
export function visibleRows(tree, toggled) {
  const found = [];
  const many = tree.runs.size > OPEN_RUNS;
  // By hand and not by recursion: a chain of delegations may be deep.
  const stack = rootOf(tree) ? [{ row: rootOf(tree), depth: 0 }] : [];
  while (stack.length) {
    const { row, call, depth } = stack.pop();
    if (row.kind === "events") {
      const expanded = toggled.get(row.key) ?? false;
      found.push({ key: row.key, depth, expanded, expandable: true, row, call });
      if (expanded) for (const note of minorNotes(tree, row.parent)) found.push({ key: note.key, depth: depth + 1, expanded: false, expandable: false, row: note });
      continue;
    }
    const all = tree.below.get(row.key) ?? [];
    const below = all.filter((key) => !tree.rows.get(key).is_minor);
    const expandable = all.length > 0;
    const expanded = expandable && (toggled.get(row.key) ?? (row.kind !== "run" || !many || depth === 0));
    found.push({ key: row.key, depth, expanded, expandable, row, call });
    if (expanded && below.length < all.length) stack.push({ row: eventsRow(tree, row), depth: depth + 1 });
    for (let at = expanded ? below.length - 1 : -1; at >= 0; at -= 1) {
      const one = tree.rows.get(below[at]);
      const started = one.kind === "call" ? tree.rows.get(tree.below.get(one.key)?.[0]) : undefined;
      stack.push(started ? { row: started, call: one, depth: depth + 1 } : { row: one, depth: depth + 1 });
    }
  }
  return found;
}

/** When the row began to be owed, when work on it began, and when it ended; null for what has not come. */
export function rowTimes({ row, call }) {
  return {
    start: call?.asked_at ?? row.asked_at,
    work: row.began_at || (row.state === "held" || row.state === "queued" ? null : row.asked_at),
    end: row.ended_at || null,
  };
}

const isWithin = (run, top) => run === top || run.startsWith(`${top}_`);

/** The call below the row, in its own run or in one further down, that waits for a person; undefined without one. */
export function heldBelow(tree, row) {
  if (isOver(row) || !["run", "step"].includes(row.kind)) return undefined;
  const calls = row.kind === "step" ? (tree.below.get(row.key) ?? []).map((key) => key.slice("call:".length)) : [];
  const holds = (held) => (row.kind === "run" ? isWithin(held.run, row.run) : held.parent === row.key || calls.some((call) => isWithin(held.run, call)));
  return [...tree.held].map((key) => tree.rows.get(key)).find(holds);
}

/** `ok`, `failed`, `held`, `waiting`, `open`, `dropped` or `note`: of a run or step also what is held below it. */
export function markOf(tree, row) {
  if (row.kind === "note" || row.kind === "events") return "note";
  if (row.state === "queued") return "waiting";
  return heldBelow(tree, row) ? "held" : row.state;
}

/** The state of a run as the API has it. */
export const stateOf = ({ facts, state }) => facts?.ended ?? (state === "open" ? "running" : state === "dropped" ? "cancelled" : state);

/** The mark of a run by its state in the API. */
export function runMark(state, held = 0) {
  if (state === "running") return "open";
  if (state === "queued") return "waiting";
  if (state === "waiting") return held ? "held" : "waiting";
  return { success: "ok", cancelled: "dropped" }[state] ?? "failed";
}

/** What to do about events of a run that cannot be shown; no line where all can. */
export function faultLines({ faults, root }) {
  if (!faults.length) return [];
  const events = faults.length === 1 ? "An event" : `${faults.length} events`;
  return [`${events} of this run cannot be shown (${faults[0]}), so something may be missing here; the run itself goes on. `
    + `Reload the page. If that does not help, upgrade the gateway, or read the run with \`cadre show ${root.slice(4)}\`.`];
}
