// A team as a graph: who delegates to whom, and what they use.

import assert from "node:assert/strict";
import { test } from "node:test";

import { teamGraph } from "../../services/cadre_gateway/console/web/state/team_graph.js";
import { perLine, placed } from "../../services/cadre_gateway/console/web/view/graph.js";

const agent = (name, fields = {}) => ({ name, team: [], tools: [], pools: [], labels: {}, memory: false, replicas: [{}], ...fields });
const nothing = { agents: [], queues: [] };
const places = (nodes) => nodes.map(({ key, rank }) => `${rank} ${key}`);

test("members stand below who delegates to them, what they use below all", () => {
  const nodes = teamGraph({
    agents: [agent("helper", { tools: ["add"], pools: ["default"] }), agent("chief", { team: ["helper", "absent"], memory: true })],
    tools: [{ name: "add", replicas: [{}, {}] }, { name: "unused", replicas: [{}] }],
    sandboxes: [],
    load: { agents: [{ name: "chief", going: 2 }], queues: [{ kind: "agent", name: "chief", messages: 3 }] },
  });
  assert.deepEqual(places(nodes), ["0 agent:chief", "1 agent:helper", "1 agent:absent", "2 tool:add", "2 pool:default", "2 memory:memory"]);
  const [chief, helper, absent, add, pool, memory] = nodes;
  assert.deepEqual(chief.edges.map((one) => one.target), ["agent:helper", "agent:absent", "memory:memory"]);
  assert.deepEqual(chief.load, { queued: 3, going: 2 });
  assert.equal(helper.load, null);
  assert.deepEqual([absent.live, add.live, pool.live, memory.live], [0, 2, 0, null]);
});

test("a selector names the agents with its labels", () => {
  const nodes = teamGraph({ agents: [agent("chief", { team: ["role=judge"] }), agent("one", { labels: { role: "judge" } }), agent("two")], tools: [], sandboxes: [], load: nothing });
  assert.deepEqual(places(nodes), ["0 agent:chief", "0 agent:two", "1 agent:one"]);
});

test("agents that delegate to each other are drawn once", () => {
  const nodes = teamGraph({ agents: [agent("a", { team: ["b"] }), agent("b", { team: ["a", "b"] })], tools: [], sandboxes: [], load: nothing });
  assert.deepEqual(places(nodes), ["0 agent:a", "1 agent:b"]);
});

test("an agent at rest is none that is missed", () => {
  const [chief, resting, gone] = teamGraph({ agents: [agent("chief", { team: ["resting", "gone"] }), agent("resting", { replicas: [] })], tools: [], sandboxes: [], load: nothing });
  assert.deepEqual([chief.live, resting.live, gone.live], [1, null, 0]);
});

test("what is away is shown as away, and no longer as at rest", () => {
  const away = { replicas: [], away_since: 990 };
  const [chief, gone, tool, pool] = teamGraph({
    agents: [agent("chief", { team: ["gone"], tools: ["pay"], pools: ["default"] }), agent("gone", away)],
    tools: [{ name: "pay", ...away }], sandboxes: [{ pool: "default", ...away }], load: nothing,
  });
  assert.deepEqual([chief, gone, tool, pool].map((one) => one.away), [false, true, true, true]);
});

test("the tools of a service are one node until it is opened", () => {
  const by = (name, instance, labels = {}) => ({ name, labels, replicas: [{ instance }, { instance: "both" }] });
  const team = {
    agents: [agent("clerk", { tools: ["pay", "look", "alone", "absent"] }), agent("chief", { team: ["clerk"], tools: ["look", "desk_a", "desk_b"] })],
    tools: [by("pay", "one"), by("look", "one"), by("alone", "two"), by("desk_a", "m1", { mcp: "desk" }), by("desk_b", "m2", { mcp: "desk" }), by("unused", "one")],
    sandboxes: [], load: { agents: [], queues: [{ kind: "tool", name: "pay", messages: 2 }, { kind: "tool", name: "look", messages: 1 }] },
  };
  const shop = "service:both,one";
  const closed = teamGraph(team);
  assert.deepEqual(places(closed).slice(2), ["2 service:mcp desk", `2 ${shop}`, "2 tool:absent", "2 tool:alone"]);
  const group = closed.find((one) => one.key === shop);
  assert.deepEqual([group.name, group.tools, group.live, group.load.queued, group.edges], ["2 tools", ["look", "pay"], 2, 3, []]);
  assert.deepEqual(closed[1].edges.map(({ target, label }) => [target, label]), [[shop, "pay"], [shop, "look"], ["tool:alone", undefined], ["tool:absent", undefined]]);
  const opened = teamGraph(team, new Set([shop]));
  assert.deepEqual(places(opened).slice(-2), ["3 tool:look", "3 tool:pay"]);
  assert.deepEqual(opened.find((one) => one.key === shop).edges.map((one) => one.target), ["tool:look", "tool:pay"]);
});

test("a rank of more nodes than have room has several lines", () => {
  const at = (name, rank) => ({ name, rank });
  const found = placed([at("a", 0), at("b", 1), at("c", 1), at("d", 1), at("e", 2)], 2);
  assert.deepEqual(found.map(({ name, rank, place }) => [name, rank, place]), [["a", 0, 0], ["b", 1, 0], ["c", 1, 1], ["d", 2, 0], ["e", 3, 0]]);
  assert.deepEqual(placed([at("a", 0), at("b", 1), at("c", 1)]).map(({ rank, place }) => [rank, place]), [[0, 0], [1, 0], [1, 1]]);
  assert.deepEqual([perLine(364), perLine(100), perLine(1400)], [2, 1, 8]);
});
