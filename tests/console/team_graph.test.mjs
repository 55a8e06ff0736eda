// A team as a graph: who delegates to whom, and what they use.

import assert from "node:assert/strict";
import { test } from "node:test";

import { teamGraph } from "../../services/cadre_gateway/console/web/state/team_graph.js";

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
