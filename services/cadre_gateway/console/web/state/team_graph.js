// A team as a graph: agents below those that delegate to them, then the services with their tools, sandboxes and memory that
// they use. Pure.

const MEMORY = "memory";

/**
 * The nodes `{key, name, kind, rank, edges: [{target}], live, load}` of what `GET /v1/agents`, `/v1/tools`,
 * `/v1/sandboxes` and `/v1/load` tell; `live` is how many replicas serve it, `load` the messages that wait and the runs
 * that go on; null where that is not known, as of an agent at rest. `away`: nothing serves it now, and calls wait for it.
 * Tools that one service has are one node of kind `service`, with their names as `tools`; those of the keys in `opened`
 * have a node for each tool below.
 */
export function teamGraph({ agents, tools, sandboxes, load }, opened = new Set()) {
  const byName = new Map(agents.map((agent) => [agent.name, agent]));
  const members = new Map(agents.map((agent) => [agent.name, membersOf(agent, agents)]));
  const ranks = ranked(byName, members);
  const deepest = Math.max(0, ...ranks.values());
  const used = { tool: new Set(), pool: new Set(), memory: false };
  const live = (list, field) => new Map(list.map((one) => [one[field], one]));
  const [toolsLive, poolsLive] = [live(tools, "name"), live(sandboxes, "pool")];
  const serviceOf = services(agents, toolsLive);
  const nodes = [...ranks].map(([name, rank]) => {
    const agent = byName.get(name);
    if (agent === undefined) return { key: key("agent", name), name, kind: "agent", rank, edges: [], live: 0, load: null };
    agent.tools.forEach((one) => used.tool.add(one));
    agent.pools.forEach((one) => used.pool.add(one));
    used.memory ||= agent.memory;
    const edges = [
      ...members.get(name).map((one) => ({ target: key("agent", one) })),
      ...agent.tools.map((one) => (serviceOf.has(one) ? { target: serviceOf.get(one).key, label: one } : { target: key("tool", one) })),
      ...agent.pools.map((one) => ({ target: key("pool", one) })),
      ...(agent.memory ? [{ target: key("memory", MEMORY) }] : []),
    ];
    return { key: key("agent", name), name, kind: "agent", rank, edges, live: liveOf(agent) || null, away: isAway(agent), load: loadOf(load, "agent", name) };
  });
  const below = (kind, name, one) => ({ key: key(kind, name), name, kind, rank: deepest + 1, edges: [], live: one && liveOf(one), away: isAway(one), load: loadOf(load, kind, name) });
  const groups = [...new Set(serviceOf.values())].map((service) => serviceNode(service, deepest + 1, toolsLive, load, opened));
  const alone = [...used.tool].filter((name) => !serviceOf.has(name));
  return [
    ...nodes,
    ...groups,
    ...alone.sort().map((name) => below("tool", name, toolsLive.get(name) ?? NONE)),
    ...[...used.pool].sort().map((name) => below("pool", name, poolsLive.get(name) ?? NONE)),
    ...(used.memory ? [below("memory", MEMORY, null)] : []),
    ...groups.filter((one) => opened.has(one.key)).flatMap((one) => one.tools.map((name) => ({ ...below("tool", name, toolsLive.get(name)), rank: deepest + 2 }))),
  ];
}

/** By tool the service that has it, `{key, name, tools}`, for those that have two or more of the tools that agents use. */
function services(agents, toolsLive) {
  const found = new Map();
  for (const name of [...new Set(agents.flatMap((agent) => agent.tools))].sort()) {
    const tool = toolsLive.get(name);
    const mcp = tool?.labels?.mcp;
    const own = mcp ? `mcp ${mcp}` : tool?.replicas.map((one) => one.instance).sort().join();
    if (!own) continue;
    const service = found.get(own) ?? { key: key("service", own), mcp, tools: [] };
    found.set(own, service);
    service.tools.push(name);
  }
  const several = [...found.values()].filter((one) => one.tools.length > 1);
  return new Map(several.flatMap((one) => one.tools.map((name) => [name, one])));
}

function serviceNode({ key: own, mcp, tools }, rank, toolsLive, load, opened) {
  const all = tools.map((name) => toolsLive.get(name));
  const known = tools.map((name) => loadOf(load, "tool", name)).filter(Boolean);
  return {
    key: own, name: `${mcp ? `${mcp}: ` : ""}${tools.length} tools`, kind: "service", rank, tools,
    edges: opened.has(own) ? tools.map((name) => ({ target: key("tool", name) })) : [],
    live: Math.max(...all.map(liveOf)), away: all.every(isAway),
    load: known.length ? { queued: known.reduce((sum, one) => sum + one.queued, 0), going: 0 } : null,
  };
}

const NONE = { replicas: [] };
const liveOf = (one) => one.replicas.length;
const isAway = (one) => (one?.away_since ?? null) !== null;

const key = (kind, name) => `${kind}:${name}`;

/** The names in an agent's team; a selector `key=value,…` names the agents with those labels. */
function membersOf(agent, agents) {
  return [...new Set(agent.team.flatMap((one) => {
    if (!one.includes("=")) return [one];
    const wanted = one.split(",").map((pair) => pair.split("="));
    return agents.filter((other) => wanted.every(([label, value]) => other.labels[label] === value)).map((other) => other.name);
  }))].filter((one) => one !== agent.name);
}

/** How far each agent lies from those that nobody delegates to; where each is somebody's member the first one leads. */
function ranked(byName, members) {
  const below = new Set([...members.values()].flat());
  const ranks = new Map();
  const visit = (names) => {
    const waiting = names.filter((name) => !ranks.has(name));
    waiting.forEach((name) => ranks.set(name, 0));
    for (const name of waiting) {
      for (const member of members.get(name) ?? []) {
        if (ranks.has(member)) continue;
        ranks.set(member, ranks.get(name) + 1);
        waiting.push(member);
      }
    }
  };
  visit([...byName.keys()].filter((name) => !below.has(name)));
  for (const name of byName.keys()) visit([name]);
  return ranks;
}

function loadOf(load, kind, name) {
  const queued = load.queues.find((one) => one.kind === kind && one.name === name)?.messages;
  const going = kind === "agent" ? load.agents.find((one) => one.name === name)?.going ?? 0 : 0;
  return queued === undefined ? null : { queued, going };
}
