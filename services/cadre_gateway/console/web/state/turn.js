// What a conversation shows of a run that goes on. Pure.

import { isOver } from "./run_tree.js";

/** The calls of all its runs that wait for a person. */
export function heldCalls(tree) {
  return [...tree.runs.values()].flatMap((run) => run.steps.flatMap((step) => step.items.filter((item) => item.state === "held")));
}

/** The text that the root's model writes at this moment, and what its runs do in words. */
export function writing(tree) {
  const root = tree.runs.get(tree.root);
  const items = root.steps.flatMap((step) => step.items);
  const open = items.findLast((item) => item.type === "model" && item.state === "open");
  const below = [...tree.runs.values()].filter((run) => run !== root && !isOver(run)).map((run) => `${run.agent}: ${run.doing || run.state}`);
  const called = items.filter((item) => item.type === "call" && item.kind === "tool" && item.state === "open").map((item) => `calling ${item.name}`);
  return { text: open?.text ?? "", doing: [root.doing, ...called, ...below].filter(Boolean).join("; ") || root.state };
}
