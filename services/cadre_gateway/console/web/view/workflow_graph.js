// The graph of a workflow with the state of each step: drawn, and as a list.

import { flowOf } from "../state/workflow.js";
import { badge, h } from "./element.js";
import { graph, placed } from "./graph.js";

const WORDS = { open: "in work", waiting: "waits", ok: "done", failed: "failed", dropped: "ended in it" };

/** The workflow of a run, whose steps have these rows. */
export function workflowGraph(workflow, run, rows) {
  const steps = flowOf(workflow, run, rows);
  const told = steps.filter((one) => one.state).map((one) => `${one.name} ${WORDS[one.state]}`).join(", ");
  return h("div", { class: "workflow" }, graph(placed(steps).map(node), { label: `Workflow: ${told || "not begun"}`, what: "Drawing of the workflow" }),
    h("details", null, h("summary", null, "As a list"), h("ol", { class: "list" }, steps.map(listed))));
}

function node(step) {
  const { name, doing, state, visits, edges } = step;
  return {
    ...step,
    title: `${name}: ${doing}${state ? `, ${WORDS[state]}` : ""}`,
    doing: visits > 1 ? `${doing}, ${visits} times` : doing,
    round: doing === "wait" || doing === "end",
    edges: edges.map((edge) => ({ ...edge, aside: edge.key === "on_error" || edge.key === "undo" })),
  };
}

function listed({ name, doing, state, visits, edges }) {
  const ways = edges.map(({ target, label }) => (label ? `${label}: ${target}` : target)).join(", ");
  return h("li", null, h("strong", null, name), ` ${doing} `, state && badge(state, WORDS[state]), visits > 1 && ` ${visits} times`, ways && h("div", { class: "remark" }, `leads to ${ways}`));
}
