// Charts over time, as SVG. Their numbers are in a table next to them, for those who do not see them.

import { h, svg, table } from "./element.js";

const WIDTH = 600;
const HEIGHT = 140;
const BASE = 118; // the line of 0
const TOP = 8;
const COLOURS = 6; // .series-0 … of the style sheet

/**
 * Bars that stand on each other (`stacked`), or lines. `times` are the names of the columns; `series` are
 * `{name, values, mark}`, a value for each time, null where there is none; `mark` is `ok` or `failed`, else each series has
 * a colour of its own. `show(value)` writes a value; `link(time, series)` gives the address that a bar or point leads to.
 */
export function chart(title, { times, series, show, link, stacked = true, unit = "" }) {
  const sums = times.map((_, at) => series.map(({ values }) => values[at] ?? 0).reduce((sum, one) => (stacked ? sum + one : Math.max(sum, one)), 0));
  const most = Math.max(...sums, 0);
  const step = WIDTH / Math.max(times.length, 1);
  const y = (value) => BASE - (most ? (value / most) * (BASE - TOP) : 0);
  const tone = (one, place) => one.mark ?? `series-${place % COLOURS}`;
  const parts = [];
  const put = (shape, one, at) => {
    const address = link?.(times[at], one);
    const told = svg("title", {}, `${times[at]}: ${one.name} ${show(one.values[at])}${unit}`);
    shape.append(told);
    parts.push(address ? svg("a", { href: address }, shape) : shape);
  };
  const floors = times.map(() => 0);
  series.forEach((one, place) => {
    const points = [];
    one.values.forEach((value, at) => {
      if (!value) return;
      const x = at * step;
      if (stacked) {
        const from = floors[at];
        floors[at] += value;
        put(svg("rect", { class: tone(one, place), x: x + step * 0.1, width: Math.max(step * 0.8, 1), y: y(floors[at]), height: Math.max(y(from) - y(floors[at]), 1) }), one, at);
      } else {
        points.push(`${x + step / 2},${y(value)}`);
        put(svg("circle", { class: tone(one, place), cx: x + step / 2, cy: y(value), r: 3 }), one, at);
      }
    });
    if (points.length > 1) parts.unshift(svg("polyline", { class: tone(one, place), points: points.join(" "), fill: "none" }));
  });
  const labels = [0, Math.floor((times.length - 1) / 2), times.length - 1].filter((at, place, all) => at >= 0 && all.indexOf(at) === place);
  const anchors = ["start", "middle", "end"];
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "group", "aria-label": title },
    svg("line", { x1: 0, x2: WIDTH, y1: BASE, y2: BASE }),
    parts,
    labels.map((at) => svg("text", { x: at === 0 ? 0 : at === times.length - 1 ? WIDTH : (at + 0.5) * step, y: HEIGHT - 6, "text-anchor": anchors[at === 0 ? 0 : at === times.length - 1 ? 2 : 1] }, times[at])));
  return h("figure", { class: "card" },
    h("figcaption", null, h("strong", null, title), most > 0 && h("span", { class: "hint" }, ` up to ${show(most)}${unit}`)),
    most > 0 ? drawing : h("p", { class: "empty" }, "Nothing in this time."),
    most > 0 && h("p", { class: "legend" }, series.map((one, place) => h("span", { class: tone(one, place) }, one.name))),
    most > 0 && h("details", null, h("summary", null, "As a table"),
      table(["Time", ...series.map((one) => one.name)], times.map((time, at) => [time, ...series.map((one) => (one.values[at] ? `${show(one.values[at])}${unit}` : ""))]))));
}
