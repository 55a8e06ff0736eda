// The first page: what needs a person now, what has happened, and who has work.

import { get, may, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { SPANS } from "../state/usage.js";
import { alert, empty, field, fill, h, table, withCode } from "../view/element.js";
import { brief, clock, duration, errorText, relative } from "../view/format.js";
import { showUsage } from "../view/usage_charts.js";
import { startRun } from "./new_run.js";

const LISTED = 5;
const COUNTED = 100;
const NEAR_SHARE = 0.8; // of a budget
const DAY = 86_400;

/** What a key may not see is left out; what fails otherwise is an error of the page. */
const allowed = (path, signal, otherwise) => get(path, signal).catch((error) => {
  if (error.status === 403) return otherwise;
  throw error;
});

/** Shows the page; returns what ends it. */
export function overviewPage(main, { query, setQuery }) {
  const chosen = { span: SPANS[query.get("span")] ? query.get("span") : "day", by: query.get("by") === "model" ? "model" : "agent" };
  const problem = h("div", null);
  const needs = h("div", { class: "needs" });
  const charts = h("div", { class: "charts" });
  const load = h("div", null);
  const change = (name) => (event) => {
    chosen[name] = event.target.value;
    setQuery(chosen);
    used.now();
  };
  const choice = (name, options) => h("select", { onchange: change(name) },
    options.map(([value, words]) => h("option", { value, selected: value === chosen[name] }, words)));
  const start = h("span", { class: "actions" });
  may("act").then((allowed) => fill(start, allowed && h("button", { type: "button", class: "primary", onclick: () => startRun() }, "New run")), (error) => fill(problem, alert(error.message)));
  fill(main, h("div", { class: "section-head" }, h("h1", null, "Overview"), start), problem,
    h("section", { "aria-label": "Needs a person" }, h("h2", null, "Needs a person"), needs),
    h("section", { "aria-label": "What happened" }, h("h2", null, "What happened"),
      h("form", { class: "bar", onsubmit: (event) => event.preventDefault() },
        field("In the last", choice("span", Object.entries(SPANS).map(([name, { words }]) => [name, words]))),
        field("By", choice("by", [["agent", "agent"], ["model", "model"]]))), charts),
    h("section", { "aria-label": "Queues and replicas" }, h("h2", null, "Queues and replicas"), load));
  const told = (error) => fill(problem, error && alert(error.message));

  const now = poll(5, async (signal) => {
    const since = Date.now() / 1000 - DAY;
    const failed = (state) => allowed(withQuery("/v1/runs", { state, since, limit: LISTED, count: true }), signal, { runs: [], total: 0 });
    const [held, letters, budgets, agents, queued, ...ends] = await Promise.all([
      allowed(`/v1/approvals?limit=${COUNTED}`, signal, { approvals: [] }), allowed(`/v1/dead-letters?limit=${COUNTED}`, signal, { dead_letters: [] }),
      allowed("/v1/budgets", signal, { budgets: [] }), allowed("/v1/agents", signal, { agents: [] }), allowed("/v1/load", signal, { agents: [], queues: [] }),
      failed("error"), failed("max_steps_error")]);
    drawNeeds({ held, letters, budgets, agents: agents.agents, ends, since: Math.floor(since) });
    drawLoad(agents.agents, queued);
  }, told);

  const used = poll(30, (signal) => showUsage(charts, chosen.span, chosen.by, (path) => allowed(path, signal, { rows: [] })), told);

  function drawNeeds({ held, letters, budgets, agents, ends, since }) {
    const sections = [
      need("waiting for a decision", "#/approvals", held.approvals.length, held.next, held.approvals.slice(0, LISTED).map((one) => [
        h("a", { href: `#/run/${encodeURIComponent(one.tree)}?at=${encodeURIComponent(`call:${one.call}`)}` }, withCode(brief(one.headline, 120))), " ", h("small", null, `${one.agent}, ${relative(one.requested_at)}`)])),
      ...["failed", "out of steps"].map((words, at) => need(`${words} in a day`, `#${withQuery("/runs", { state: ["error", "max_steps_error"][at], since })}`, ends[at].total ?? 0, null, ends[at].runs.map((run) => [
        h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, withCode(brief(run.task, 60) || run.id)), " ", h("small", null, withCode(`${run.agent}: ${brief(errorText(run.error), 100)}`))]))),
      need("dead letters", "#/dead-letters", letters.dead_letters.length, letters.next, letters.dead_letters.slice(0, LISTED).map((one) => [
        `${one.queue} `, h("small", null, withCode(`${brief(one.reason, 100)}, ${relative(one.at)}`))])),
      need("budgets near their end", "#/statistics", ...near(budgets.budgets)),
      need("agents with a problem", "#/team", ...troubled(agents)),
      need("rollouts under way", "#/team", ...rolling(agents)),
    ].filter(Boolean);
    const signature = sections.map((one) => one.textContent).join("\n");
    if (needs.dataset.signature === signature) return;
    needs.dataset.signature = signature;
    fill(needs, sections.length ? sections : empty("Nothing needs a person."));
  }

  function drawLoad(agents, { agents: loads, queues }) {
    const rows = agents.map((agent) => {
      const own = loads.find((one) => one.name === agent.name);
      const queue = queues.find((one) => one.kind === "agent" && one.name === agent.name);
      return [h("a", { href: `#${withQuery("/runs", { member: agent.name })}` }, agent.name), agent.replicas.length || (agent.away_since ? `away since ${clock(agent.away_since)}` : "at rest"),
        queue?.messages ?? "", own?.going ?? "", own?.counted ? `${duration(own.p50_seconds)}, ${duration(own.p95_seconds)}` : ""];
    });
    fill(load, rows.length ? table(["Agent", "Replicas", "Queue", "Going on", "A run takes (p50, p95)"], rows) : empty("No live agent: start one with `cadre agent FILE`."));
  }

  return () => {
    now();
    used();
  };
}

/** One kind of what needs a person; nothing where there is nothing. */
function need(words, href, number, more, lines) {
  return number > 0 && h("article", { class: "card need" },
    h("h3", null, h("a", { href }, `${number}${more ? "+" : ""} ${words}`)),
    h("ul", { class: "list" }, lines.map((line) => h("li", null, line))));
}

function near(budgets) {
  const found = budgets.filter((one) => one.share >= NEAR_SHARE);
  return [found.length, null, found.map((one) => [`${one.name}: ${Math.round(one.share * 100)} % used, until ${clock(one.until)}`])];
}

function troubled(agents) {
  const lines = agents.flatMap((agent) => [
    ...(agent.missing.length ? [`${agent.name} lacks ${agent.missing.join(", ")}`] : []), ...(agent.away.length ? [`${agent.name} waits for ${agent.away.join(", ")}`] : []),
    ...(agent.away_since ? [`${agent.name} is away since ${clock(agent.away_since)}`] : []), ...(agent.differing.length ? [`replicas of ${agent.name} differ`] : [])]);
  return [lines.length, null, lines.slice(0, LISTED)];
}

function rolling(agents) {
  const found = agents.filter((agent) => new Set(agent.replicas.map((one) => one.revision)).size > 1 || agent.rollout?.length);
  return [found.length, null, found.map((agent) => `${agent.name}: ${[...new Set(agent.replicas.map((one) => one.revision))].join(", ")}`)];
}
