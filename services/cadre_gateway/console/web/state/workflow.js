// A workflow as a graph: where its steps lead, where a run has been in it, and a place for each step. Pure.

const ACTIONS = ["tool", "ask", "agent", "each", "parallel", "approve", "wait", "choose", "end"];

/** Every way that leads from a step, as `{key, target, label}`; the same as `cadre graph` draws. */
export function edgesOf(step) {
  const edges = [];
  const add = (key, target, label = "") => target && edges.push({ key, target, label });
  const { approve, choose, wait, each, parallel, route } = step;
  for (const answer of ["yes", "no", "expired"]) add(`approve.${answer}`, approve?.[answer], answer);
  for (const one of (Array.isArray(choose) ? choose : choose?.cases) ?? []) add("choose", one.next, one.if);
  add("choose.default", choose?.default, "else");
  add("wait.expired", wait?.expired, "expired");
  if (step.end === undefined) {
    for (const one of step.when ?? []) add("when", one.next, one.if);
    for (const [label, target] of Object.entries(route?.options ?? {})) add(`route.options.${label}`, target, label);
    add("route.default", route?.default, "else");
    add("next", step.next, step.when?.length ? "else" : "");
  }
  add("each.step", each?.step, "each item");
  for (const [branch, target] of Object.entries(parallel?.branches ?? {})) add(`parallel.branches.${branch}`, target, branch);
  add("on_error", step.on_error, "error");
  add("undo", step.undo, "undo");
  return edges;
}

/** What a step does, by the key that says it. */
export const doing = (step) => ACTIONS.find((key) => step[key] !== undefined && step[key] !== null) ?? "";

/**
 * The steps of a workflow: `{name, doing, edges, state, visits, taken, rank}`, state "open", "waiting", "ok", "failed",
 * "dropped" or "". A rank is how far a step lies from the beginning. `entered` are the rows of the run's steps, in order.
 */
export function flowOf({ start, steps = {} }, run, entered) {
  const been = visited(steps, run, entered);
  const ranks = new Map([[start, 0]]);
  const waiting = [start];
  for (const name of waiting) {
    for (const { target } of edgesOf(steps[name] ?? {})) {
      if (ranks.has(target) || !steps[target]) continue;
      ranks.set(target, ranks.get(name) + 1);
      waiting.push(target);
    }
  }
  return waiting.filter((name) => steps[name]).map((name) => (
    { name, doing: doing(steps[name]), edges: edgesOf(steps[name]), state: "", visits: 0, taken: new Set(), ...been.get(name), rank: ranks.get(name) }));
}

/** Of each step that was entered its state, how often, and the ways that were taken. */
function visited(steps, run, entered) {
  const found = new Map();
  let before = null;
  for (const row of entered.filter(({ words }) => steps[words])) {
    const step = found.get(row.words) ?? { visits: 0, taken: new Set() };
    found.set(row.words, step);
    step.visits += 1;
    step.state = row.state;
    before?.taken.add(row.words);
    before = step;
  }
  // Where it is: what it waits for there, or that it will try that again.
  if (before && !run.ended_at && before.state !== "ok") before.state = run.state;
  return found;
}
