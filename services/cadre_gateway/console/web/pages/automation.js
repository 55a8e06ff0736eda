// Schedules, triggers, notices and standing budgets: made, changed, paused and removed, as far as the signed-in person may.

import { get, may, post, request, urlOf, withQuery } from "../http/api.js";
import { poll } from "../http/poll.js";
import { KINDS, specOf } from "../state/definitions.js";
import { runMark } from "../state/run_tree.js";
import { alert, badge, button, dialog, empty, field, fill, h, liveTable, toast, withCode } from "../view/element.js";
import { editDefinition } from "../view/definition_form.js";
import { brief, clock, cost, count, relative } from "../view/format.js";
import { showValue } from "../view/value.js";

const OPENED = 5; // so few triggers show their deliveries at once
const DELIVERIES = 10;
const ABOUT = {
  schedule: "Start runs by the clock.", trigger: "Start runs by messages on the bus and by signed webhooks.",
  notice: "Tell other systems what happened, by signed webhooks.", budget: "Bound what users, agents and teams may use; runs under way go on.",
};

/** Shows the page; returns what ends it. */
export function automationPage(main) {
  const problem = h("div", null);
  const known = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, new Map()]));
  const rights = new Set(); // kinds that the person may write
  let acts = false;
  let over = false;
  const lists = { schedule: scheduleTable(), trigger: triggerCards(), notice: noticeTable(), budget: budgetTable() };
  const sections = Object.fromEntries(Object.entries(KINDS).map(([kind, { words, plural }]) => {
    const bar = h("span", { class: "actions" });
    const none = empty(`There are no ${plural}.`);
    const box = h("section", { class: "definitions", id: plural, "aria-label": `${words}s` }, h("div", { class: "section-head" }, h("h2", null, `${words}s`), bar), h("p", { class: "hint" }, ABOUT[kind]), none, lists[kind].element);
    return [kind, { bar, none, box }];
  }));
  fill(main, h("h1", null, "Automation"), problem, Object.values(sections).map(({ box }) => box));

  const refresh = poll(10, async (signal) => {
    acts = await may("act", { all: true });
    for (const [kind, { right, words }] of Object.entries(KINDS)) {
      if (!(await may(right, { all: true })) || rights.has(kind)) continue;
      rights.add(kind);
      fill(sections[kind].bar, button(`New ${words.toLowerCase()}`, () => edit(kind)));
    }
    const answers = await Promise.all(Object.entries(KINDS).map(async ([kind, { plural }]) => [kind, await get(`/v1/${plural}`, signal).then((found) => found[plural], (error) => {
      if (error.status === 403) return null;
      throw error;
    })]));
    if (over) return;
    for (const [kind, found] of answers) {
      sections[kind].box.hidden = found === null;
      known[kind] = new Map((found ?? []).map((one) => [one.name, one]));
      sections[kind].none.hidden = known[kind].size > 0;
      lists[kind].element.hidden = !known[kind].size;
      lists[kind].draw(found ?? []);
    }
  }, (error) => fill(problem, error && alert(error.message)));

  /** Makes a definition, or changes the one of that name. */
  async function edit(kind, name = "") {
    await editDefinition(kind, name ? { name, spec: specOf(kind, known[kind].get(name)) } : {});
    refresh.now();
  }

  const pathOf = (kind, name) => `/v1/${KINDS[kind].plural}/${encodeURIComponent(name)}`;

  async function pause(kind, name, paused) {
    if (kind === "schedule") await post(`${pathOf(kind, name)}/${paused ? "pause" : "resume"}`);
    else {
      const { paused: _, ...spec } = specOf(kind, known[kind].get(name));
      await request("PUT", pathOf(kind, name), paused ? { ...spec, paused } : spec);
    }
    toast(paused ? `${name} is paused` : `${name} goes on`);
    refresh.now();
  }

  function remove(kind, name) {
    const words = KINDS[kind].words.toLowerCase();
    dialog(`Remove ${words} ${name}?`, h("p", null, kind === "notice" ? "What is on its way is not delivered." : "Runs that have begun go on."), "Remove", async () => {
      await request("DELETE", pathOf(kind, name));
      toast(`${name} is removed`);
      refresh.now();
    });
  }

  function show(kind, name) {
    dialog(name, showValue(known[kind].get(name)), null, null).classList.add("wide");
  }

  /** The buttons of one definition, those that the person may use. */
  function actions(kind, { name }, ...more) {
    const one = known[kind].get(name);
    const isPaused = kind === "budget" ? one.spec.paused : one.paused || one.paused_for;
    return h("span", { class: "actions" }, more,
      rights.has(kind) && [
        h("button", { type: "button", onclick: () => edit(kind, name) }, "Change"),
        isPaused ? button("Resume", () => resume(kind, name)) : button("Pause", () => pause(kind, name, true)),
        h("button", { type: "button", class: "danger", onclick: () => remove(kind, name) }, "Remove")],
      h("button", { type: "button", onclick: () => show(kind, name) }, "Show"));
  }

  /** A trigger or notice whose maker lost a right goes on with the rights of the person who writes it again. */
  const resume = (kind, name) => pause(kind, name, false);

  function stateOf(one, paused = one.paused) {
    if (one.paused_for) return badge("failed", `paused: ${one.paused_for}`);
    return badge(paused ? "waiting" : "ok", paused ? "paused" : "active");
  }

  async function runNow(name) {
    const { id } = await post(`${pathOf("schedule", name)}/run`);
    location.hash = `#/run/${encodeURIComponent(id)}`;
  }

  function scheduleTable() {
    return liveTable([
      { name: "name", head: "Name", cell: (one) => h("strong", null, one.name) },
      { name: "agent", head: "Agent", cell: (one) => one.agent },
      { name: "when", head: "When", cell: ({ spec }) => h("code", null, spec.every ? `every ${spec.every}` : spec.cron ?? "once") },
      { name: "state", head: "State", cell: (one) => stateOf(one) },
      { name: "next", head: "Next", cell: (one) => one.next.length > 0 && !one.paused && h("span", { title: clock(one.next[0]) }, relative(one.next[0])) },
      { name: "last", head: "Last", cell: lastTick },
      { name: "started", head: "Started", cell: (one) => `${one.started} of ${one.ticks}` },
      { name: "actions", head: "", cell: (one) => actions("schedule", one, acts && button("Run now", () => runNow(one.name))) },
    ], (one) => one.name, { label: "All schedules" });
  }

  function lastTick({ outcomes, last_run: run }) {
    const last = outcomes[0];
    if (last?.outcome === "failed") return h("span", null, badge("failed", last.code || "failed"), " ", h("small", null, brief(last.detail, 100)));
    return run && h("a", { href: `#/run/${encodeURIComponent(run)}` }, last?.outcome ?? "run");
  }

  function noticeTable() {
    return liveTable([
      { name: "name", head: "Name", cell: (one) => h("strong", null, one.name) },
      { name: "url", head: "Address", cell: (one) => h("code", null, one.url) },
      { name: "events", head: "Events", cell: (one) => (one.events ?? ["all"]).join(", ") },
      { name: "agents", head: "Agents", cell: (one) => (one.agents ?? ["all"]).join(", ") },
      { name: "state", head: "State", cell: (one) => stateOf(one) },
      { name: "actions", head: "", cell: (one) => actions("notice", one) },
    ], (one) => one.name, { label: "All notices" });
  }

  function budgetTable() {
    const limits = ({ tokens, cost: most }) => [tokens && `${count(tokens)} tokens`, most && `cost ${cost(most)}`].filter(Boolean).join(", ");
    const whose = (spec) => [spec.user && (spec.user === "*" ? "each user" : `user ${spec.user}`), spec.team && `team ${spec.team}`, spec.agent && `agent ${spec.agent}`].filter(Boolean).join(", ") || "all";
    return liveTable([
      { name: "name", head: "Name", cell: (one) => h("strong", null, one.name) },
      { name: "of", head: "Of", cell: (one) => whose(one.spec) },
      { name: "limits", head: "Limit", cell: (one) => `${limits(one.spec)} a ${one.spec.window}` },
      { name: "used", head: "Used", cell: (one) => h("span", { class: "nowrap" }, h("meter", { min: 0, max: 1, high: 0.8, optimum: 0, value: Math.min(one.share, 1), "aria-label": `${one.name} used` }), ` ${Math.round(one.share * 100)} %`) },
      { name: "until", head: "Until", cell: (one) => clock(one.until) },
      { name: "state", head: "State", cell: (one) => stateOf(one, one.spec.paused) },
      { name: "actions", head: "", cell: (one) => actions("budget", one) },
    ], (one) => one.name, { label: "All budgets" });
  }

  function triggerCards() {
    const element = h("div", { class: "cards" });
    const cards = new Map();
    const draw = (all) => {
      for (const [name, card] of cards) {
        if (all.some((one) => one.name === name)) continue;
        card.element.remove();
        cards.delete(name);
      }
      for (const one of all) {
        if (!cards.has(one.name)) {
          cards.set(one.name, triggerCard(one.name, all.length <= OPENED));
          element.append(cards.get(one.name).element);
        }
        cards.get(one.name).draw(one);
      }
    };
    return { element, draw };
  }

  function triggerCard(name, isOpen) {
    const head = h("div", null);
    const list = h("ul", { class: "list deliveries" });
    const details = h("details", { open: isOpen, ontoggle: () => load() }, h("summary", null, "Last deliveries"), list);
    const foot = h("div", null);
    let drawn = "";
    const element = h("article", { class: "card" }, head, details, foot);

    async function load() {
      if (!details.open || over) return;
      try {
        const { runs } = await get(withQuery("/v1/runs", { label: `trigger=${name}`, limit: DELIVERIES }));
        drawDeliveries(runs, known.trigger.get(name)?.refusals ?? []);
      } catch (error) {
        fill(list, h("li", null, alert(error.message)));
      }
    }

    function drawDeliveries(runs, refusals) {
      const lines = [...runs.map((run) => ({ at: run.asked_at, line: [badge(runMark(run.state, run.approvals), run.state.replaceAll("_", " ")), " ", h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, withCode(brief(run.task, 80) || run.id))] })),
        ...refusals.map((one) => ({ at: one.at, line: [badge("failed", one.code), " ", brief(one.detail, 160), one.id && h("small", null, ` (message ${brief(one.id, 60)})`)] }))]
        .sort((a, b) => b.at - a.at).slice(0, DELIVERIES);
      const next = h("ul", { class: "list deliveries" }, lines.length ? lines.map(({ at, line }) => h("li", null, h("small", { class: "nowrap" }, clock(at)), " ", line)) : h("li", { class: "none" }, "Nothing has arrived yet."));
      if (!list.isEqualNode(next)) fill(list, [...next.childNodes]);
    }

    const draw = (one) => {
      load();
      const next = h("div", null, addresses(one));
      const signature = `${next.textContent}${one.paused}${acts}${rights.has("trigger")}`;
      if (signature === drawn) return;
      drawn = signature;
      fill(head, [...next.childNodes]);
      fill(foot, actions("trigger", one, acts && h("button", { type: "button", onclick: () => tryOut(name) }, "Try it")));
    };
    return { element, draw };
  }

  function addresses(one) {
    const webhook = one.webhook && location.origin + urlOf(`/v1/triggers/${encodeURIComponent(one.name)}`);
    return [h("h3", null, one.name, " ", stateOf(one)),
      h("p", null, "Starts ", h("strong", null, one.agent), ": ", h("code", null, brief(one.task, 120))),
      h("dl", { class: "facts" },
        webhook && [h("dt", null, "Webhook"), h("dd", null, h("code", null, `POST ${webhook}`), " ", copyButton(webhook)), h("dt", null, "Secret"), h("dd", null, h("code", null, one.webhook.secret_env))],
        one.bus_subject && [h("dt", null, "On the bus"), h("dd", null, h("code", null, one.bus_subject), " ", copyButton(one.bus_subject))])];
  }

  function tryOut(name) {
    const one = known.trigger.get(name);
    const found = h("div", { "aria-live": "polite" });
    const subject = one.subject ? h("input", { name: "subject", value: one.subject.replace(/[*>]/g, "new") }) : null;
    const message = h("textarea", { name: "message", rows: 6, class: "code", spellcheck: false, value: "{}" });
    const ask = (start) => request("POST", withQuery(`${pathOf("trigger", name)}/try`, { start: start || undefined, subject: subject?.value }), undefined, undefined, {}, message.value);
    dialog(`Try trigger ${name}`, [
      h("p", { class: "hint" }, "The task that it makes of this message. No signature is needed here; a run starts with your rights."),
      field("Message", message, "JSON, or any text"), subject && field("Subject", subject), found,
      h("div", { class: "actions" }, button("Show the task", async () => {
        try {
          fill(found, h("h3", null, "Its task"), h("pre", null, (await ask(false)).task));
        } catch (error) {
          fill(found, alert(error.message));
        }
      })),
    ], "Start the run", async () => {
      const { run } = await ask(true);
      location.hash = `#/run/${encodeURIComponent(run)}`;
    });
  }

  return () => {
    over = true;
    refresh();
  };
}

const copyButton = (text) => navigator.clipboard && button("Copy", async () => {
  await navigator.clipboard.writeText(text);
  toast("copied");
}, { class: "quiet", "aria-label": `Copy ${text}` });
