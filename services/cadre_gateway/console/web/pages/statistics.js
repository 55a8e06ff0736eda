// What agents have used, and what is left of standing budgets.

import { writeJson } from "../exact_json.js";
import { get, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { columns, SPANS } from "../state/usage.js";
import { alert, empty, field, fill, h, table } from "../view/element.js";
import { clock, cost, count } from "../view/format.js";
import { showUsage } from "../view/usage_charts.js";

const BY = ["agent", "model", "day", "team", "user", "session", "tool"];

/** Shows the page; returns what ends it. */
export function statisticsPage(main, { query, setQuery }) {
  const asked = { by: BY.includes(query.get("by")) ? query.get("by") : "agent", span: SPANS[query.get("span")] ? query.get("span") : "week" };
  const problem = h("div", null);
  const charts = h("div", { class: "charts" });
  const sums = h("div", null);
  const budgets = h("div", null);
  const change = (name) => (event) => {
    asked[name] = event.target.value;
    setQuery(asked);
    refresh.now();
  };
  const choice = (name, options) => h("select", { onchange: change(name) },
    options.map(([value, words]) => h("option", { value, selected: value === asked[name] }, words)));
  fill(main, h("h1", null, "Statistics"),
    h("form", { class: "bar" }, field("By", choice("by", BY.map((one) => [one, one]))), field("In the last", choice("span", Object.entries(SPANS).map(([name, { words }]) => [name, words])))),
    problem, charts, h("h2", null, "Sums"), sums, h("h2", null, "Standing budgets"), budgets);

  const refresh = poll(15, async (signal) => {
    const since = columns(asked.span, Date.now() / 1000)[0].begin;
    const [used, standing] = await Promise.all([get(withQuery("/v1/stats", { by: asked.by, since }), signal), get("/v1/budgets", signal), showUsage(charts, asked.span, asked.by, (path) => get(path, signal))]);
    const rows = [...used.rows].sort((a, b) => (used.by[0] === "day" ? (a.day < b.day ? 1 : -1) : b.cost - a.cost || tokens(b) - tokens(a)));
    const heads = [...used.by.map((one) => one[0].toUpperCase() + one.slice(1)), "Runs", "Failed", "Model calls", "Tool calls", "Tokens in", "Tokens out", "Cost"];
    fill(sums, rows.length ? table(heads, [...rows.map((row) => cells(row, used.by.map((one) => row[one] || "–"))),
      cells(used.total, used.by.map((_, index) => (index ? "" : h("strong", null, "All"))))], `From ${clock(used.since)} on`) : empty("Nothing was used in this time."));
    fill(budgets, standing.budgets.length ? table(["Name", "Used", "Until", "Rules"], standing.budgets.map((one) => [
      one.name, h("span", null, h("meter", { min: 0, max: 1, high: 0.9, optimum: 0, value: Math.min(one.share, 1), "aria-label": `${one.name} used` }), ` ${Math.round(one.share * 100)} %`),
      clock(one.until), h("code", null, writeJson(one.spec))])) : empty("There are none: ", h("a", { href: "#/automation" }, "make one"), "."));
  }, (error) => fill(problem, error && alert(error.message)));
  return refresh;
}

const tokens = (row) => row.input_tokens + row.output_tokens;

const cells = (row, names) => [...names, count(row.runs), row.failed || "", count(row.model_calls), `${count(row.tool_calls)}${row.tool_failures ? ` (${row.tool_failures} failed)` : ""}`,
  count(row.input_tokens), count(row.output_tokens), cost(row.cost) + (row.unpriced_calls ? ` (${row.unpriced_calls} calls unpriced)` : "")];
