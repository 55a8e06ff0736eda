import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyTree, heldBelow, markOf, rootOf, rowTimes, stateOf, takeEvents, totals, visibleRows } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { errorText } from "../../services/cadre_gateway/console/web/view/format.js";
import { call, delta, model, rows, run, step } from "./story.mjs";

const after = (...events) => {
  const tree = emptyTree("a1");
  takeEvents(tree, events);
  return tree;
};
const keys = (tree, toggled = new Map()) => visibleRows(tree, toggled).map((one) => [one.depth, one.key]);

test("a member's run stands in place of the call that started it, and its wait in the queue is shown apart", () => {
  const usage = { input_tokens: 100, output_tokens: 10, cost: 0.5, model_calls: 1 };
  const tree = after(
    rows(run("a1", { usage }), step("a1", 1), model("a1", 1, { state: "ok", ended_at: 12 }), call("a1", 1, 0, { asked_at: 12, state: "ok" })),
    rows(run("a1_1_0", { usage, began_at: 15, ended_at: 17, state: "ok" }), step("a1_1_0", 1)),
  );
  assert.deepEqual(keys(tree), [[0, "run:a1"], [1, "step:a1:1"], [2, "model:a1:10.1"], [2, "run:a1_1_0"], [3, "step:a1_1_0:1"]]);
  assert.deepEqual(rowTimes(visibleRows(tree, new Map())[3]), { start: 12, work: 15, end: 17 });
  assert.deepEqual(totals(tree), { input: 200, output: 20, calls: 2, cost: 1, runs: 2 });
  assert.deepEqual(keys(tree, new Map([["step:a1:1", false]])), [[0, "run:a1"], [1, "step:a1:1"]]);
});

test("rows stand in the order in which they began, however late they come", () => {
  const begun = [run("a1"), step("a1", 1), model("a1", 1), call("a1", 1, 0), call("a1", 1, 1), step("a1", 2), model("a1", 2)];
  const live = keys(after(...begun.map((one) => rows(one))));
  assert.deepEqual(keys(after(rows(...begun.toReversed()))), live);
  assert.deepEqual(live.map(([, key]) => key), begun.map((one) => one.key));
});

test("a row replaces the one of its key", () => {
  const tree = after(rows(run("a1"), step("a1", 1), call("a1", 1, 0, { state: "held" })), rows(call("a1", 1, 0, { state: "ok", text: "7" })));
  assert.deepEqual([tree.rows.get("call:a1_1_0").state, tree.rows.get("call:a1_1_0").text, tree.held.size], ["ok", "7", 0]);
});

test("pieces of an answer are joined, repeated ones dropped, a gap is marked until the whole has come", () => {
  const tree = after(rows(run("a1"), step("a1", 1), model("a1", 1)), delta("a1", 1, "a", 1), delta("a1", 1, "a", 1), delta("a1", 1, "b", 2));
  const draft = () => tree.drafts.get("model:a1:10.1");
  assert.deepEqual([draft().text, draft().gap], ["ab", false]);
  takeEvents(tree, [delta("a1", 1, "x", 3, 2), delta("a1", 2, "x", 3), delta("b", 1, "x", 3)]);
  assert.equal(draft().text, "ab", "of another call of the model");
  takeEvents(tree, [delta("a1", 1, "d", 4)]);
  assert.deepEqual([draft().text, draft().gap], ["abd", true]);
  takeEvents(tree, [rows(model("a1", 1, { state: "ok", ended_at: 3 })), delta("a1", 1, "late", 5)]);
  assert.equal(tree.drafts.size, 0);
});

test("what is held marks its step and its run", () => {
  const tree = after(rows(run("a1", { state: "waiting" }), step("a1", 1), step("a1", 2), call("a1", 2, 0, { state: "held" })));
  assert.deepEqual(visibleRows(tree, new Map()).map(({ row }) => markOf(tree, row)), ["held", "open", "held", "held"]);
  assert.equal(markOf(tree, { ...rootOf(tree), run: "b" }), "waiting");
});

test("the state of a run is that of the API", () => {
  const state = (fields) => stateOf({ facts: {}, state: "open", ...fields });
  assert.deepEqual([state({}), state({ state: "waiting" }), state({ state: "failed", facts: { ended: "max_steps_error" } }), state({ state: "dropped" })],
    ["running", "waiting", "max_steps_error", "cancelled"]);
});

test("a row that cannot be taken in is reported, and the others are shown", () => {
  const tree = after(rows(run("a1")), { name: "rows", data: { rows: [{ key: 7 }] } }, { name: "rows", data: null, fault: new Error("oops") },
    rows(step("a1", 1)), { name: "odd", data: null }, { name: "end", data: { run: "a1", state: "success" } });
  assert.equal(tree.faults.length, 2);
  assert.equal(visibleRows(tree, new Map()).length, 2);
});

test("an error of a call is told without the call", () => {
  const text = (message, preamble) => errorText({ code: "tool-failed", type: "AgentToolExecutionError", message, preamble });
  assert.equal(text("About the call 🙂: no column", 18), "no column", "the gateway counts characters, not UTF-16 units");
  assert.equal(text("no column"), "no column");
  assert.equal(errorText({ type: "AgentError", message: "no" }), "AgentError: no");
  assert.equal(errorText(null), "");
});

test("minor notes are folded in one row at the end of their step", () => {
  const note = (index, fields = {}) => ({ ...call("a1", 1, index), key: `note:a1:11.${index + 1}`, kind: "note", state: "ok", ended_at: 2, ...fields });
  const tree = after(rows(run("a1"), step("a1", 1), note(0, { is_minor: true }), note(1), note(2, { is_minor: true }), call("a1", 1, 3)));
  const folded = [[0, "run:a1"], [1, "step:a1:1"], [2, "note:a1:11.2"], [2, "call:a1_1_3"], [2, "events:step:a1:1"]];
  assert.deepEqual(keys(tree), folded);
  assert.equal(visibleRows(tree, new Map()).at(-1).row.name, "2 events");
  assert.deepEqual(keys(tree, new Map([["events:step:a1:1", true]])), [...folded, [3, "note:a1:11.1"], [3, "note:a1:11.3"]]);
});

test("a run whose member waits for a person is marked so, and so is the step that asked the member", () => {
  const tree = after(rows(run("a1"), step("a1", 1), call("a1", 1, 0), run("a1_1_0"), step("a1_1_0", 1), call("a1_1_0", 1, 0, { state: "held" })));
  for (const key of ["run:a1", "step:a1:1", "run:a1_1_0", "step:a1_1_0:1"]) assert.equal(markOf(tree, tree.rows.get(key)), "held", key);
  assert.equal(heldBelow(tree, rootOf(tree)).key, "call:a1_1_0_1_0");
  takeEvents(tree, [rows(call("a1_1_0", 1, 0, { state: "ok", ended_at: 9 }))]);
  assert.equal(markOf(tree, rootOf(tree)), "open");
});
