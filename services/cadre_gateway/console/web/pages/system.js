// Whether this gateway is well, and whether the machines' clocks agree.

import { parseJson } from "../exact_json.js";
import { get, urlOf } from "../http/api.js";
import { poll } from "../http/poll.js";
import { alert, badge, fill, h, table } from "../view/element.js";
import { relative } from "../view/format.js";

/** Shows the page; returns what ends it. */
export function systemPage(main) {
  const state = h("div", null);
  const processes = h("div", null);
  fill(main, h("h1", null, "System"), state, h("h2", null, "Processes"), processes,
    h("p", { class: "hint" }, "More is found out by ", h("code", null, "cadre doctor"), "; the API is described at ", h("a", { href: urlOf("/openapi.json") }, "/openapi.json"), "."));

  return poll(5, async (signal) => {
    const answer = await fetch(urlOf("/readyz"), { signal });
    const ready = await answer.text().then(parseJson).catch(() => ({}));
    fill(state, answer.ok ? h("p", null, badge("ok", "ready"), " this gateway answers; ", ready.index ?? "it has read all journals")
      : alert(`this gateway is not ready: ${ready.missing ?? `status ${answer.status}`}`));
    const [agents, tools, sandboxes] = await Promise.all(["agents", "tools", "sandboxes"].map((name) => get(`/v1/${name}`, signal)));
    const all = new Map();
    const add = (what, name, list) => list.forEach((one) => {
      const known = all.get(one.instance) ?? { ...one, serves: [] };
      known.serves.push(`${what} ${name}`);
      all.set(one.instance, known);
    });
    agents.agents.forEach((one) => add("agent", one.name, one.replicas));
    tools.tools.forEach((one) => add("tool", one.name, one.replicas));
    sandboxes.sandboxes.forEach((one) => add("sandbox", one.pool, one.replicas));
    fill(processes, table(["Process", "Host", "Serves", "Since", "Clock"], [...all.values()].map((one) => [
      one.instance, one.host, one.serves.join(", "), relative(one.started_at),
      Math.abs(one.skew) >= 1 ? badge("held", `${one.skew.toFixed(1)} s off: set it right`) : "agrees"])));
  }, (error) => error && fill(state, alert(error.message)));
}
