// A graph drawn in ranks from top to bottom: nodes as boxes, ways between them as curves.

import { h, svg } from "./element.js";

const [WIDE, HIGH, ACROSS, DOWN, MARGIN] = [132, 40, 24, 44, 12];
const SHORT = 16; // characters of a name

/**
 * Draws nodes `{name, key, doing, title, state, round, rank, place, edges: [{target, label, aside}], taken}`;
 * `key` is what edges name a node by, where that is not its name. `label` says what the drawing tells, `what` of.
 */
export function graph(nodes, { label, what }) {
  const widest = Math.max(...nodes.map((one) => one.place)) + 1;
  const deepest = Math.max(...nodes.map((one) => one.rank)) + 1;
  const perRank = (rank) => nodes.filter((one) => one.rank === rank).length;
  const width = widest * (WIDE + ACROSS) + 2 * MARGIN;
  const height = deepest * (HIGH + DOWN) - DOWN + 2 * MARGIN;
  const corner = ({ rank, place }) => {
    const used = perRank(rank) * (WIDE + ACROSS) - ACROSS;
    return [(width - used) / 2 + place * (WIDE + ACROSS), MARGIN + rank * (HIGH + DOWN)];
  };
  const byKey = new Map(nodes.map((one) => [one.key ?? one.name, { ...one, corner: corner(one) }]));
  const placed = [...byKey.values()];
  const lines = placed.flatMap((from) => targets(from.edges).filter((target) => byKey.has(target)).map((target) => drawEdge(from, target, byKey.get(target))));
  return h("div", { class: "scroll graph", tabIndex: 0, role: "region", "aria-label": what },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, lines, placed.map(drawNode)));
}

/** Gives each of the nodes that lie in ranks its place within its own. */
export function placed(nodes) {
  const counts = [];
  return nodes.map((node) => {
    counts[node.rank] = (counts[node.rank] ?? -1) + 1;
    return { ...node, place: counts[node.rank] };
  });
}

function drawNode({ name, doing, title, state, round, corner: [x, y] }) {
  return svg("g", { class: `step ${state}` },
    svg("title", {}, title),
    svg("rect", { x, y, width: WIDE, height: HIGH, rx: round ? 20 : 6 }),
    svg("text", { x: x + WIDE / 2, y: y + 17, class: "name" }, cut(name)),
    svg("text", { x: x + WIDE / 2, y: y + 32, class: "doing" }, cut(doing)));
}

const targets = (edges) => [...new Set(edges.map((edge) => edge.target))];

/** A curve from the lower edge of one node to the upper edge of another, or beside them where it leads back. */
function drawEdge(from, target, to) {
  const ways = from.edges.filter((edge) => edge.target === target);
  const label = ways.map((edge) => edge.label).filter(Boolean).join(", ");
  const aside = ways.every((edge) => edge.aside);
  const [x1, y1] = [from.corner[0] + WIDE / 2, from.corner[1] + HIGH];
  const [x2, y2] = [to.corner[0] + WIDE / 2, to.corner[1]];
  const taken = from.taken?.has(target) ? "taken" : "";
  const back = to.rank <= from.rank;
  const bend = back ? WIDE : 0;
  const path = `M ${x1} ${y1} C ${x1 + bend} ${y1 + DOWN * 0.8}, ${x2 + bend} ${y2 - DOWN * 0.8}, ${x2} ${y2}`;
  const tip = `M ${x2 - 4} ${y2 - 7} L ${x2} ${y2} L ${x2 + 4} ${y2 - 7}`;
  return svg("g", { class: `way ${taken} ${aside ? "aside" : ""}` },
    svg("title", {}, `${from.name} leads to ${to.name}${label ? `: ${label}` : ""}`),
    svg("path", { d: path }), svg("path", { d: tip, class: "tip" }));
}

const cut = (text) => (text.length > SHORT ? `${text.slice(0, SHORT - 1)}…` : text);
