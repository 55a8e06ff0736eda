// Who is there: agents, tools, sandboxes, with the processes that serve them.

import { writeJson } from "../exact_json.js";
import { get } from "../http/api.js";
import { poll } from "../http/poll.js";
import { teamGraph } from "../state/team_graph.js";
import { alert, badge, button, empty, fill, h, table, withCode } from "../view/element.js";
import { clock, count, duration, relative } from "../view/format.js";
import { graph, perLine, placed } from "../view/graph.js";
import { showValue } from "../view/value.js";
import { startRun } from "./new_run.js";

const KINDS = { agent: "agent", tool: "tool", service: "service", pool: "sandbox", memory: "memory" };

/** Shows the page; returns what ends it. */
export function teamPage(main) {
  const problem = h("div", null);
  const drawing = h("div", { class: "workflow" });
  const agents = h("div", { class: "cards" });
  const tools = h("div", null);
  const sandboxes = h("div", null);
  fill(main, h("h1", null, "Team"), problem, drawing,
    h("h2", null, "Agents"), agents, h("h2", null, "Tools"), tools, h("h2", null, "Sandboxes"), sandboxes);
  let shown = "";
  let team = null; // as it was drawn
  const opened = new Set(); // keys of services whose tools are drawn
  let across = 0; // nodes that have room side by side
  const draw = () => {
    across = perLine(drawing.clientWidth);
    fill(drawing, team?.agents.length > 0 && teamDrawing(team, opened, across, (key) => {
      if (!opened.delete(key)) opened.add(key);
      draw();
      drawing.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    }));
  };
  // In the next frame: an observer that changes the size that it observes is reported as a fault.
  const resized = new ResizeObserver(() => requestAnimationFrame(() => perLine(drawing.clientWidth) !== across && draw()));
  resized.observe(drawing);

  const stop = poll(5, async (signal) => {
    const load = await get("/v1/load", signal).catch((error) => {
      if (error.status === 403) return { agents: [], queues: [] }; // the key reaches some agents only
      throw error;
    });
    const [one, two, three] = await Promise.all(["agents", "tools", "sandboxes"].map((name) => get(`/v1/${name}`, signal)));
    const signature = writeJson([one, two, three, load]);
    if (signature === shown) return;
    shown = signature;
    const members = new Set(one.agents.flatMap((agent) => agent.team));
    team = { ...one, ...two, ...three, load };
    draw();
    fill(agents, one.agents.length ? [...one.agents].sort((a, b) => members.has(a.name) - members.has(b.name)).map((agent) => agentCard(agent, load)) : empty("No live agent: start one with `cadre agent FILE`."));
    fill(tools, two.tools.length ? table(["Tool", "Does", "Approval", "Queue", "Replicas", "Arguments"], two.tools.map((tool) => toolCells(tool, queued(load, "tool", tool.name)))) : empty("No live tools."));
    fill(sandboxes, three.sandboxes.length ? table(["Pool", "Tier", "Python", "Sessions", "Replicas"], three.sandboxes.map((pool) => [
      pool.pool, pool.tier, pool.python, pool.sessions, replicas(pool)])) : empty("No live sandboxes."));
  }, (error) => fill(problem, error && alert(error.message)));
  return () => {
    stop();
    resized.disconnect();
  };
}

function teamDrawing(team, opened, across, onToggle) {
  const nodes = placed(teamGraph(team, opened), across).map((node) => {
    const told = [KINDS[node.kind], ...(node.live === null ? [] : [node.away ? "away" : replicaCount(node.live)]), ...loadWords(node.load)];
    const doing = node.away ? "away" : node.live === 0 ? "not live" : told.slice(-1)[0];
    return {
      ...node, doing, title: `${node.name}${node.tools ? ` (${node.tools.join(", ")})` : ""}: ${told.join(", ")}`, round: node.kind !== "agent",
      state: node.live === 0 ? "failed" : node.load?.going ? "open" : "", expanded: node.tools && opened.has(node.key),
    };
  });
  const agents = nodes.filter((one) => one.kind === "agent").map((one) => one.name);
  return graph(nodes, { label: `Team: ${agents.join(", ")}, and what they use`, what: "Drawing of the team", onToggle });
}

function loadWords(load) {
  if (load === null) return [];
  return [...(load.queued ? [`${load.queued} queued`] : []), ...(load.going ? [`${load.going} going on`] : [])];
}

/** Messages that wait for, or are in the hands of, those who serve it; null where the gateway does not know. */
const queued = (load, kind, name) => load.queues.find((one) => one.kind === kind && one.name === name)?.messages ?? null;

function agentCard(agent, load) {
  const own = load.agents.find((one) => one.name === agent.name);
  const waiting = queued(load, "agent", agent.name);
  return h("article", { class: "card" },
    h("h3", null, agent.name, " ", h("span", { class: "kind" }, agent.kind)),
    h("p", null, withCode(agent.description)),
    agent.missing.length > 0 && alert(`missing: ${agent.missing.join(", ")}`),
    agent.away.length > 0 && alert(`away: ${agent.away.join(", ")}`),
    agent.problems.map((one) => alert(Object.values(one).filter((part) => typeof part === "string").join(": "))),
    agent.differing.length > 0 && alert(`its replicas differ in spec or prompts: ${agent.differing.join(", ")}`),
    h("dl", { class: "facts" }, [
      ["Team", agent.team.join(", ")], ["Tools", agent.tools.join(", ")], ["Their schemas", agent.schemas], ["Version", agent.version],
      ["Queue", waiting !== null && `${waiting} ${waiting === 1 ? "message" : "messages"}`], ["Runs going on", own?.going],
      ["A run takes", own?.counted && `p50 ${duration(own.p50_seconds)}, p95 ${duration(own.p95_seconds)} (of the last ${own.counted})`],
      ["First request", agent.prompt_tokens ? `${count(agent.prompt_tokens)} tokens at least` : ""],
      ["Labels", Object.entries(agent.labels).map((pair) => pair.join("=")).join(", ")],
    ].filter(([, value]) => value).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    replicas(agent),
    h("div", { class: "actions" },
      button("Try it", () => startRun({ agent: agent.name })),
      h("a", { href: `#/runs?member=${encodeURIComponent(agent.name)}` }, "its runs")));
}

const replicaCount = (count) => count === 0 ? "at rest" : `${count} ${count === 1 ? "replica" : "replicas"}`;

function replicas({ replicas: list, away_since: since }) {
  const state = since === null ? badge("ok", replicaCount(list.length)) : h("span", { title: clock(since) }, badge("failed", `away, last seen ${relative(since)}`));
  return h("details", null, h("summary", null, state),
    table(["Instance", "Host", "Process", "Revision", "Health at", "Since", "Clock"], list.map((one) => [
      one.instance, one.host, one.pid, one.revision, one.health, h("span", { title: clock(one.started_at) }, relative(one.started_at)),
      Math.abs(one.skew) >= 1 ? `${one.skew.toFixed(1)} s off` : ""])));
}

function toolCells(tool, waiting) {
  return [
    h("strong", null, tool.name), h("span", null, withCode(tool.description)), tool.approval || (tool.read_only ? "reads only" : ""), waiting ?? "", replicas(tool),
    h("details", null, h("summary", null, Object.keys(tool.input_schema.properties ?? {}).join(", ") || "none"), showValue(tool.input_schema)),
  ];
}
