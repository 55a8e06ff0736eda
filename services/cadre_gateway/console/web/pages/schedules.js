// Runs that start by the clock, or by messages and webhooks.

import { get, post } from "../http/api.js";
import { poll } from "../http/poll.js";
import { alert, badge, button, dialog, empty, fill, h, table, toast } from "../view/element.js";
import { clock, relative } from "../view/format.js";
import { showValue } from "../view/value.js";

/** Shows the page; returns what ends it. */
export function schedulesPage(main) {
  const problem = h("div", null);
  const schedules = h("div", null);
  const triggers = h("div", null);
  fill(main, h("h1", null, "Schedules"), problem, schedules, h("h2", null, "Triggers"), triggers);

  const refresh = poll(10, async (signal) => {
    const [clocks, others] = await Promise.all([get("/v1/schedules", signal), get("/v1/triggers", signal)]);
    fill(schedules, clocks.schedules.length ? table(["Name", "Agent", "State", "Next", "Last", "Started", ""], clocks.schedules.map(cells))
      : empty("There are none: `cadre schedule` makes one."));
    fill(triggers, others.triggers.length ? [others.triggers.filter((one) => one.paused_for).map(paused), showValue(others.triggers)] : empty("There are none: `cadre trigger` makes one."));
  }, (error) => fill(problem, error && alert(error.message)));

  const paused = (one) => alert(`${one.name} starts no runs: ${one.paused_for}`);

  // With the code of a pause that no person made, such as that its maker's key was revoked.
  const state = (one) => (one.paused_for ? badge("failed", `paused: ${one.paused_for}`)
    : badge(one.paused ? "waiting" : "ok", one.paused ? "paused" : "on"));

  function cells(one) {
    const path = `/v1/schedules/${encodeURIComponent(one.name)}`;
    const act = (verb, words) => async () => {
      const answer = await post(`${path}/${verb}`);
      toast(words);
      if (answer?.id) location.hash = `#/run/${encodeURIComponent(answer.id)}`;
      else refresh.now();
    };
    return [
      one.name, one.agent, state(one),
      one.next.length > 0 && !one.paused ? h("span", { title: clock(one.next[0]) }, relative(one.next[0])) : "",
      one.last_run && h("a", { href: `#/run/${encodeURIComponent(one.last_run)}` }, one.outcomes[0]?.outcome ?? "run"),
      `${one.started} of ${one.ticks}`,
      h("span", { class: "actions" }, button("Run now", act("run", "started")),
        one.paused ? button("Resume", act("resume", "resumed")) : button("Pause", act("pause", "paused")),
        h("button", { type: "button", onclick: () => dialog(one.name, [showValue(one)], "OK", async () => {}).classList.add("wide") }, "Show")),
    ];
  }

  return refresh;
}
