// What a conversation shows of a run that goes on. Pure.

import { isOver, rootOf, rowsBelow } from "./run_tree.js";

/** The calls of all its runs that wait for a person. */
export const heldCalls = (tree) => [...tree.held].map((key) => tree.rows.get(key));

/** The text that the root's model writes at this moment, and what its runs do in words. */
export function writing(tree) {
  const root = rootOf(tree);
  const below = [...tree.runs.values()].filter((run) => run !== root && !isOver(run)).map((run) => `${run.name}: ${run.words || run.state}`);
  const called = rowsBelow(tree, root.key).flatMap((step) => rowsBelow(tree, step.key))
    .filter((row) => row.kind === "call" && row.state === "open" && !tree.below.has(row.key)).map((row) => `calling ${row.name}`);
  return { text: tree.drafts.get(tree.asked.get(root.run))?.text ?? "", doing: [root.words, ...called, ...below].filter(Boolean).join("; ") || root.state };
}
