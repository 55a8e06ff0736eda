// Runs, durations, cost and tokens over time as charts, by what people choose.

import { withQuery } from "../http/api.js";
import { columns, seriesOf, SPANS, valuesOf } from "../state/usage.js";
import { chart } from "./chart.js";
import { cost, count, duration } from "./format.js";

/** Filters of the list of runs, by what sums are taken by: the bars of the others lead to all runs of their time. */
const FILTERS = { agent: "member", team: "agent", user: "user", session: "session" };
const MANY = 422; // more rows than one answer holds

/** Shows in `place` the charts of a span of SPANS, with a series for each value of `by`, but for `day`. `ask(path)` asks the gateway. */
export async function showUsage(place, span, by, ask) {
  const { by: time } = SPANS[span];
  const cols = columns(span, Date.now() / 1000);
  const since = cols[0].begin;
  const sums = (wanted) => ask(withQuery("/v1/stats", { by: wanted, since }));
  const [{ rows: all }, { rows: parts }] = await Promise.all([sums(time), by === "day" ? { rows: [] } : sums(`${time},${by}`).catch((error) => {
    if (error.status === MANY) return { rows: [] };
    throw error;
  })]);
  const words = ({ begin }) => (time === "day" ? new Date(begin * 1000).toLocaleDateString([], { timeZone: "UTC", day: "numeric", month: "short" })
    : new Date(begin * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
  const times = cols.map(words);
  const link = (shown, one) => {
    const { begin, end } = cols[times.indexOf(shown)];
    const own = FILTERS[by] && one.isPart && !one.isRest ? { [FILTERS[by]]: one.name } : {};
    return `#${withQuery("/runs", { ...own, state: one.state, since: begin, until: end, sort: one.sort })}`;
  };
  const of = (name) => valuesOf(all, time, cols, name);
  const failed = of("failed");
  const partly = (measure, sort) => seriesOf(parts, time, by, cols, measure).map((one) => ({ ...one, sort, isPart: true }));
  const chartOf = (title, show, measure, sort) => by !== "day" && chart(`${title} by ${by}`, { times, link, show, series: partly(measure, sort) });
  const tokens = (row) => row.input_tokens + row.output_tokens;
  update(place, [
    chart("Runs", { times, link, show: count, series: [
      { name: "ended well", mark: "ok", values: of("runs").map((runs, at) => (runs ?? 0) - (failed[at] ?? 0)) }, { name: "failed", mark: "failed", state: "failed", values: failed }] }),
    chart("How long a task took", { times, link, show: duration, stacked: false, series: [
      { name: "half of them", values: of("p50_seconds") }, { name: "95 of 100", values: of("p95_seconds") }] }),
    ...(by === "tool" ? [chartOf("Calls", count, (row) => row.tool_calls), chartOf("Failures", count, (row) => row.tool_failures)]
      : [chartOf("Cost", cost, (row) => row.cost, "cost"), chartOf("Tokens", count, tokens)]),
  ].filter(Boolean));
}

/** Has the place show these charts; one that says the same as before stays, with its table open. */
function update(place, charts) {
  charts.forEach((one, at) => {
    const old = place.children[at];
    if (!old) place.append(one);
    else if (old.textContent !== one.textContent) old.replaceWith(one);
  });
  while (place.children.length > charts.length) place.lastChild.remove();
}
