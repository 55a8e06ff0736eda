// The graph of a workflow with the state of each step: drawn, and as a list.

import { flowOf } from "../state/workflow.js";
import { badge, h, svg } from "./element.js";

const [WIDE, HIGH, ACROSS, DOWN, MARGIN] = [132, 40, 24, 44, 12];
const WORDS = { open: "in work", waiting: "waits", ok: "done", failed: "failed", dropped: "ended in it" };
const SHORT = 16; // characters of a name or a label

/** The workflow of a run. */
export function workflowGraph(run) {
  const steps = flowOf(run);
  return h("div", { class: "workflow" }, draw(steps), h("details", null, h("summary", null, "As a list"), h("ol", { class: "list" }, steps.map(listed))));
}

function listed({ name, doing, state, visits, edges }) {
  const ways = edges.map(({ target, label }) => (label ? `${label}: ${target}` : target)).join(", ");
  return h("li", null, h("strong", null, name), ` ${doing} `, state && badge(state, WORDS[state]), visits > 1 && ` ${visits} times`, ways && h("div", { class: "remark" }, `leads to ${ways}`));
}

function draw(steps) {
  const widest = Math.max(...steps.map((one) => one.place)) + 1;
  const deepest = Math.max(...steps.map((one) => one.rank)) + 1;
  const perRank = (rank) => steps.filter((one) => one.rank === rank).length;
  const width = widest * (WIDE + ACROSS) + 2 * MARGIN;
  const height = deepest * (HIGH + DOWN) - DOWN + 2 * MARGIN;
  const corner = ({ rank, place }) => {
    const used = perRank(rank) * (WIDE + ACROSS) - ACROSS;
    return [(width - used) / 2 + place * (WIDE + ACROSS), MARGIN + rank * (HIGH + DOWN)];
  };
  const byName = new Map(steps.map((one) => [one.name, { ...one, corner: corner(one) }]));
  const told = steps.filter((one) => one.state).map((one) => `${one.name} ${WORDS[one.state]}`).join(", ");
  const lines = [...byName.values()].flatMap((from) => targets(from.edges).filter((target) => byName.has(target)).map((target) => drawEdge(from, byName.get(target))));
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Drawing of the workflow" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Workflow: ${told || "not begun"}` },
      lines, [...byName.values()].map(drawStep)));
}

function drawStep({ name, doing, state, visits, corner: [x, y] }) {
  return svg("g", { class: `step ${state}` },
    svg("title", {}, `${name}: ${doing}${state ? `, ${WORDS[state]}` : ""}`),
    svg("rect", { x, y, width: WIDE, height: HIGH, rx: doing === "wait" || doing === "end" ? 20 : 6 }),
    svg("text", { x: x + WIDE / 2, y: y + 17, class: "name" }, cut(name)),
    svg("text", { x: x + WIDE / 2, y: y + 32, class: "doing" }, visits > 1 ? `${doing}, ${visits} times` : doing));
}

const targets = (edges) => [...new Set(edges.map((edge) => edge.target))];

/** A curve from the lower edge of one step to the upper edge of another, or beside them where it leads back. */
function drawEdge(from, to) {
  const ways = from.edges.filter((edge) => edge.target === to.name);
  const label = ways.map((edge) => edge.label).filter(Boolean).join(", ");
  const aside = ways.every(({ key }) => key === "on_error" || key === "undo");
  const [x1, y1] = [from.corner[0] + WIDE / 2, from.corner[1] + HIGH];
  const [x2, y2] = [to.corner[0] + WIDE / 2, to.corner[1]];
  const taken = from.taken?.has(to.name) ? "taken" : "";
  const back = to.rank <= from.rank;
  const bend = back ? WIDE : 0;
  const path = `M ${x1} ${y1} C ${x1 + bend} ${y1 + DOWN * 0.8}, ${x2 + bend} ${y2 - DOWN * 0.8}, ${x2} ${y2}`;
  const tip = `M ${x2 - 4} ${y2 - 7} L ${x2} ${y2} L ${x2 + 4} ${y2 - 7}`;
  return svg("g", { class: `way ${taken} ${aside ? "aside" : ""}` },
    svg("title", {}, `${from.name} leads to ${to.name}${label ? `: ${label}` : ""}`),
    svg("path", { d: path }), svg("path", { d: tip, class: "tip" }));
}

const cut = (text) => (text.length > SHORT ? `${text.slice(0, SHORT - 1)}…` : text);
