// A graph drawn in ranks from top to bottom: nodes as boxes, ways between them as curves.

import { h, svg } from "./element.js";

const [WIDE, HIGH, ACROSS, DOWN, MARGIN] = [132, 40, 24, 44, 12];
const SHORT = 16; // characters of a name

/**
 * Draws nodes `{name, key, doing, title, state, round, rank, place, edges: [{target, label, aside}], taken}`;
 * `key` is what edges name a node by, where that is not its name. `label` says what the drawing shows, `what` of. A node
 * with `expanded` (true or false) is a button: `onToggle` gets its key.
 */
export function graph(nodes, { label, what, onToggle }) {
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
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: onToggle ? "group" : "img", "aria-label": label }, lines, placed.map((node) => drawNode(node, onToggle))));
}

/** How many nodes lie side by side in so many pixels. */
export const perLine = (pixels) => Math.max(1, Math.floor((pixels - 2 * MARGIN) / (WIDE + ACROSS)));

/** Gives each of the nodes that lie in ranks its place within its own; a rank of more than `most` has several lines. */
export function placed(nodes, most = Infinity) {
  const ranks = [];
  for (const node of nodes) (ranks[node.rank] ??= []).push(node);
  let line = 0;
  return ranks.flatMap((rank) => {
    const lines = Math.ceil(rank.length / most) || 1;
    const wide = Math.ceil(rank.length / lines);
    const found = rank.map((node, at) => ({ ...node, rank: line + Math.floor(at / wide), place: at % wide }));
    line += lines;
    return found;
  });
}

function drawNode({ key, name, doing, title, state, round, expanded, corner: [x, y] }, onToggle) {
  const toggle = expanded === undefined ? {} : { role: "button", tabindex: 0, "aria-expanded": expanded, "aria-label": title, "data-key": key };
  const node = svg("g", { class: `step ${state}`, ...toggle },
    svg("title", {}, title),
    svg("rect", { x, y, width: WIDE, height: HIGH, rx: round ? 20 : 6 }),
    svg("text", { x: x + WIDE / 2, y: y + 17, class: "name" }, cut(name)),
    svg("text", { x: x + WIDE / 2, y: y + 32, class: "doing" }, cut(doing)));
  if (expanded === undefined) return node;
  node.append(svg("path", { d: expanded ? `M ${x + 9} ${y + 11} l 8 0 l -4 5 z` : `M ${x + 10} ${y + 9} l 5 4 l -5 4 z`, class: "fold" }));
  node.addEventListener("click", () => onToggle(key));
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onToggle(key);
  });
  return node;
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
