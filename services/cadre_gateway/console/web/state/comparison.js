// Two trees of runs side by side. Pure.

import { same } from "../exact_json.js";
import { isOver, totals } from "./run_tree.js";
import { errorText } from "./texts.js";

/**
 * What two runs have in common and where they differ: `facts` as `{name, values: [left, right], differs}`, where values are
 * numbers or texts, and `steps` as `{number, sides: [left, right], differs}`, where a side is null in a run without
 * such a step. Counts are those of the whole trees, steps those of their roots.
 */
export function compareTrees(left, right) {
  const trees = [left, right];
  const roots = trees.map((tree) => tree.runs.get(tree.root));
  const sums = trees.map((tree) => totals(tree, tree.root));
  const fact = (name, values) => ({ name, values, differs: !same(...values) });
  const numbers = [...new Set(roots.flatMap((run) => run.steps.map((step) => step.number)))].sort((a, b) => a - b);
  return {
    facts: [
      fact("Agent", roots.map((run) => run.agent)),
      fact("Task", roots.map((run) => run.task)),
      fact("State", roots.map((run) => run.state)),
      fact("Model", roots.map((run) => run.model)),
      fact("Answer", roots.map((run) => run.output ?? errorText(run.error))),
      fact("Steps", roots.map((run) => run.steps.filter((step) => step.number > 0).length)),
      fact("Runs", sums.map((sum) => sum.runs)),
      fact("Tools used", trees.map(toolsText)),
      fact("Model calls", sums.map((sum) => sum.calls)),
      fact("Tokens in", sums.map((sum) => sum.input)),
      fact("Tokens out", sums.map((sum) => sum.output)),
      fact("Cost", sums.map((sum) => sum.cost)),
      { name: "Seconds", values: roots.map((run) => (isOver(run) ? run.endedAt - run.startedAt : null)), differs: false }, // they always do
    ],
    steps: numbers.map((number) => {
      const sides = roots.map((run) => sideOf(run.steps.find((step) => step.number === number)));
      return { number, sides, differs: !same(...sides) };
    }),
  };
}

/** What stands in a step, without the times and ids that differ in any case. */
function sideOf(step) {
  if (!step) return null;
  const parts = [];
  for (const item of step.items) {
    if (item.type === "model" && item.text) parts.push({ what: "answer", text: item.text });
    if (item.type === "code") parts.push({ what: "code", text: item.code, result: outcome(item), logs: item.logs });
    if (item.type === "call") parts.push({ what: item.kind, name: item.name, arguments: item.arguments, result: outcome(item) });
  }
  return { name: step.name, error: errorText(step.error), parts };
}

const outcome = (item) => (item.error ? errorText(item.error) : item.result ?? null);

/** `search ×2, clerk`: tools and members of all runs, by name. */
function toolsText(tree) {
  const counts = new Map();
  for (const run of tree.runs.values()) {
    for (const { items } of run.steps) {
      for (const item of items) if (item.type === "call" && item.name) counts.set(item.name, (counts.get(item.name) ?? 0) + 1);
    }
  }
  return [...counts].sort().map(([name, times]) => (times > 1 ? `${name} ×${times}` : name)).join(", ");
}
