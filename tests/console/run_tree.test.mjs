import assert from "node:assert/strict";
import { test } from "node:test";

import { rowState, rowTimes, visibleRows } from "../../services/cadre_gateway/console/web/state/rows.js";
import { applyEvents, emptyTree, totals } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { errorText } from "../../services/cadre_gateway/console/web/state/texts.js";
import { accepted, answered, asked, delta, event } from "./story.mjs";

const after = (...events) => applyEvents(emptyTree(), events);
const items = (tree, run, step) => tree.runs.get(run).steps.find((one) => one.number === step).items;

test("a member's run stands below the call that started it, and its wait in the queue is told apart", () => {
  const tree = after(
    accepted("a1", 10), asked("a1", 10, 1), answered("a1", 12, 1),
    event("a1", 12, "delegate.started", { call: "a1_1_0", member: "helper", task: "help" }),
    accepted("a1_1_0", 15), asked("a1_1_0", 15, 1), answered("a1_1_0", 16, 1),
    event("a1_1_0", 17, "run.finished", { state: "success", output: 42 }),
    event("a1", 18, "delegate.finished", { call: "a1_1_0", member: "helper", state: "success", output: 42 }),
    event("a1", 18, "step.finished", { step: 1 }),
    event("a1", 19, "run.finished", { state: "success", output: "42." }),
  );
  const rows = visibleRows(tree, new Map());
  assert.deepEqual(rows.map((row) => [row.depth, row.type]), [
    [0, "run"], [1, "step"], [2, "item"], [2, "run"], [3, "step"], [4, "item"],
  ]);
  assert.deepEqual(rowTimes(rows[3]), { start: 12, work: 15, end: 17 });
  assert.deepEqual(totals(tree, "a1"), { input: 200, output: 20, calls: 2, cost: 1, runs: 2, held: 0 });
  assert.equal(totals(tree, "a1_1_0").input, 100);
  assert.deepEqual(rows.map(rowState), ["ok", "ok", "ok", "ok", "ok", "ok"]);
  assert.deepEqual(visibleRows(tree, new Map([["step:a1:1", false]])).map((row) => row.type), ["run", "step"]);
});

test("batches and single events come to the same, and the tree before is not changed", () => {
  const events = [
    accepted("a1", 10), asked("a1", 10, 1), delta("a1", 1, "hel", 1), delta("a1", 1, "lo", 2), answered("a1", 12, 1),
    event("a1", 12, "tool.called", { call: "a1_1_0", tool: "look", arguments: { at: 1 } }),
    event("a1", 14, "tool.answered", { call: "a1_1_0", tool: "look", output: [1], seconds: 1 }),
  ];
  let single = emptyTree();
  for (const one of events) {
    const frozen = deepFreeze(structuredClone(single));
    single = applyEvents(frozen, [one]);
  }
  const { events: counted, ...rest } = single;
  assert.equal(counted, 5);
  const { events: _, ...whole } = after(...events);
  assert.deepEqual(rest, whole);
  const [model, call] = items(single, "a1", 1);
  assert.equal(model.text, "so");
  assert.deepEqual([call.openedAt, call.startedAt, call.endedAt, call.state], [12, 13, 14, "ok"]);
});

function deepFreeze(value) {
  if (value instanceof Map) value.forEach(deepFreeze);
  else if (value && typeof value === "object") Object.values(Object.freeze(value)).forEach(deepFreeze);
  return value;
}

test("pieces of an answer are joined, repeated ones dropped, a gap is marked until the whole has come", () => {
  let tree = after(accepted("a1", 1), asked("a1", 1, 1), delta("a1", 1, "a", 1), delta("a1", 1, "a", 1), delta("a1", 1, "b", 2));
  assert.deepEqual([items(tree, "a1", 1)[0].text, items(tree, "a1", 1)[0].gap], ["ab", false]);
  tree = applyEvents(tree, [delta("a1", 1, "d", 4)]);
  assert.equal(items(tree, "a1", 1)[0].gap, true);
  tree = applyEvents(tree, [answered("a1", 2, 1, { content: "abcd" }), delta("a1", 1, "late", 5)]);
  assert.deepEqual([items(tree, "a1", 1)[0].text, items(tree, "a1", 1)[0].gap], ["abcd", false]);
  tree = applyEvents(tree, [asked("a1", 3, 2), delta("a1", 1, "other step", 1)]);
  assert.equal(items(tree, "a1", 2)[0].text, "");
});

test("a held call waits, keeps what it was before a correction, and goes on", () => {
  const held = event("a1", 5, "approval.requested", { call: "a1_1_0", name: "pay", kind: "tool", arguments: { sum: 9 }, reason: "money", expires_at: 99 });
  let tree = after(accepted("a1", 1), asked("a1", 1, 1), answered("a1", 4, 1), held);
  assert.deepEqual([tree.runs.get("a1").state, tree.runs.get("a1").held], ["waiting", 1]);
  assert.deepEqual(visibleRows(tree, new Map()).map(rowState), ["held", "held", "ok", "held"]);
  tree = applyEvents(tree, [
    event("a1", 8, "approval.decided", { call: "a1_1_0", verdict: "corrected", sender: "ann", arguments: { sum: 3 } }),
    event("a1", 8, "tool.called", { call: "a1_1_0", tool: "pay", arguments: { sum: 3 } }),
  ]);
  const [, call] = items(tree, "a1", 1);
  assert.deepEqual([call.state, call.before, call.arguments, call.decision.by], ["open", { sum: 9 }, { sum: 3 }, "ann"]);
  assert.equal(tree.runs.get("a1").state, "running");
  tree = applyEvents(tree, [event("a1", 9, "run.finished", { state: "cancelled" })]);
  assert.equal(items(tree, "a1", 1)[1].state, "dropped");
});

test("with a run ends what is below it, also when that is told too late or never", () => {
  const held = event("a1_1_0", 5, "approval.requested", { call: "a1_1_0_1_0", name: "pay", kind: "tool", arguments: {}, reason: "" });
  let tree = after(accepted("a1", 1), asked("a1", 1, 1), answered("a1", 2, 1), event("a1", 2, "delegate.started", { call: "a1_1_0", member: "helper", task: "" }),
    accepted("a1_1_0", 3), held, event("a1", 6, "run.finished", { state: "cancelled" }));
  assert.equal(totals(tree, "a1").held, 0);
  assert.deepEqual([tree.runs.get("a1_1_0").state, tree.runs.get("a1_1_0").endedAt], ["cancelled", 6]);
  tree = applyEvents(tree, [event("a1_1_0", 7, "run.finished", { state: "error" })]);
  assert.deepEqual([tree.runs.get("a1_1_0").state, tree.runs.get("a1_1_0").endedAt], ["error", 7]);
});

test("a rejected call has failed; two held calls are two", () => {
  const ask = (index) => event("a1", 5, "approval.requested", { call: `a1_1_${index}`, name: "pay", kind: "tool", arguments: {}, reason: "" });
  const tree = after(accepted("a1", 1), asked("a1", 1, 1), answered("a1", 4, 1), ask(0), ask(1),
    event("a1", 6, "approval.decided", { call: "a1_1_0", verdict: "rejected", sender: "ann", feedback: "too much" }));
  assert.equal(tree.runs.get("a1").held, 1);
  const [, first] = items(tree, "a1", 1);
  assert.deepEqual([first.state, first.error.message], ["failed", "rejected by ann: too much"]);
});

test("a deferred model, a wait for a signal and code are told", () => {
  const tree = after(
    accepted("a1", 1), asked("a1", 1, 1), event("a1", 2, "model.deferred", { step: 1, attempt: 1, until: 9, reason: "busy" }),
    asked("a1", 9, 1, 2), answered("a1", 11, 1, { attempt: 2 }),
    event("a1", 11, "code.started", { block: "a1_1_0", code: "1" }),
    event("a1", 12, "code.yielded", { block: "a1_1_0", exchange: 1, calls: [], logs: "x\n" }),
    event("a1", 13, "code.finished", { block: "a1_1_0", exchange: 2, output: 1, logs: "y\n", seconds: 1 }),
    event("a1", 14, "wait.started", { name: "w", signal: "go" }),
  );
  const [first, second, code, wait] = items(tree, "a1", 1);
  assert.deepEqual([first.state, second.state, second.attempt], ["deferred", "ok", 2]);
  assert.deepEqual([code.logs, code.startedAt, code.endedAt], ["x\ny\n", 12, 13]);
  assert.equal(wait.type, "note");
  assert.equal(tree.runs.get("a1").awaits.signal, "go");
});

test("an event that this version does not know is told and breaks nothing", () => {
  const tree = after(accepted("a1", 1), event("a1", 2, "moon.landed", { where: "Hadley" }), { name: "odd", data: null }, { name: "end", data: { run: "a1", state: "success" } });
  assert.equal(tree.runs.get("a1").steps[0].items[0].event.where, "Hadley");
  assert.equal(tree.ended, "success");
});

test("a tree of 1,000 runs and 15,000 events is folded and laid out quickly", () => {
  const events = [accepted("a", 0), asked("a", 0, 1), answered("a", 1, 1)];
  for (let child = 0; child < 1000; child += 1) {
    const id = `a_1_${child}`;
    events.push(event("a", 1, "delegate.started", { call: id, member: "helper", task: "t" }), accepted(id, 2));
    for (let step = 1; step <= 3; step += 1) {
      events.push(asked(id, step + 2, step), answered(id, step + 2, step), event(id, step + 2, "tool.called", { call: `${id}_${step}_0`, tool: "t", arguments: {} }),
        event(id, step + 3, "tool.answered", { call: `${id}_${step}_0`, tool: "t", output: 1 }));
    }
  }
  const begin = performance.now();
  let tree = emptyTree();
  for (let at = 0; at < events.length; at += 100) tree = applyEvents(tree, events.slice(at, at + 100));
  const rows = visibleRows(tree, new Map());
  const milliseconds = performance.now() - begin;
  assert.equal(tree.runs.size, 1001);
  assert.equal(rows.length, 2 + 1 + 1000, "members begin closed");
  assert.ok(milliseconds < 5000, `${milliseconds} ms`);
});

test("an error of a call is told without the call", () => {
  const text = (message, preamble) => errorText({ code: "tool-failed", type: "AgentToolExecutionError", message, preamble });
  assert.equal(text("About the call 🙂: no column", 18), "no column", "the gateway counts characters, not UTF-16 units");
  assert.equal(text("no column"), "no column");
  assert.equal(errorText({ type: "AgentError", message: "no" }), "AgentError: no");
  assert.equal(errorText(null), "");
});
