// Two trees of runs side by side. Pure.

import { same } from "../exact_json.js";
import { isOver, rootOf, stateOf, totals } from "./run_tree.js";

/**
 * What two runs have in common and where they differ: `facts` as `{name, values: [left, right], differs}`, where values are
 * numbers or texts, and `steps` as `{number, sides: [left, right], differs}`, where a side is null in a run without
 * such a step. Counts are those of the whole trees, steps those of their roots. `runs` are the roots with their steps, as
 * the API has them.
 */
export function compareTrees(trees, runs) {
  const roots = trees.map(rootOf);
  const sums = trees.map(totals);
  const fact = (name, values) => ({ name, values, differs: !same(...values) });
  const steps = runs.map(({ memory }) => new Map(memory.filter((one) => one.type === "action").map((one) => [one.number, one])));
  const numbers = [...new Set(steps.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  return {
    facts: [
      fact("Agent", roots.map((run) => run.name)),
      fact("Task", runs.map(({ memory, task }) => memory.find((one) => one.type === "task")?.task ?? task)),
      fact("State", roots.map(stateOf)),
      fact("Model", roots.map((run) => run.facts.model ?? "")),
      fact("Answer", runs.map(({ output }, side) => output ?? roots[side].error)),
      fact("Steps", steps.map((one) => one.size)),
      fact("Runs", sums.map((sum) => sum.runs)),
      fact("Tools used", trees.map(toolsText)),
      fact("Model calls", sums.map((sum) => sum.calls)),
      fact("Tokens in", sums.map((sum) => sum.input)),
      fact("Tokens out", sums.map((sum) => sum.output)),
      fact("Cost", sums.map((sum) => sum.cost)),
      { name: "Seconds", values: roots.map((run) => (isOver(run) ? run.ended_at - run.began_at : null)), differs: false }, // they always do
    ],
    steps: numbers.map((number) => {
      const sides = steps.map((one) => sideOf(one.get(number)));
      return { number, sides, differs: !same(...sides) };
    }),
  };
}

/** What stands in a step, without the times and ids that differ in any case. */
function sideOf(step) {
  if (!step) return null;
  const { kind, code, observation, ...own } = step.own ?? {};
  const parts = [];
  if (step.content) parts.push({ what: "answer", text: step.content });
  if (code) parts.push({ what: kind, text: code, result: observation ?? null });
  else if (own.name) parts.push({ what: kind, name: own.name, result: own.result ?? null });
  for (const call of step.calls ?? []) {
    parts.push({ what: call.kind, name: call.name, arguments: call.arguments ?? {}, result: call.error?.message ?? call.observation ?? null });
  }
  return { error: step.error?.message ?? "", parts };
}

/** `search ×2, clerk`: tools and members of all runs, by name. */
function toolsText(tree) {
  const counts = new Map();
  for (const { kind, name } of tree.rows.values()) if (kind === "call") counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort().map(([name, times]) => (times > 1 ? `${name} ×${times}` : name)).join(", ");
}
