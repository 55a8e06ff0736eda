// The graph of a workflow, and where a run has been in it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { applyEvents, emptyTree } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { edgesOf, flowOf } from "../../services/cadre_gateway/console/web/state/workflow.js";
import { event } from "./story.mjs";

const steps = {
  read: { tool: "read", next: "sign", on_error: "stop" },
  sign: { approve: { question: "ok?", yes: "pay", no: "stop" } },
  pay: { tool: "pay", undo: "refund", when: [{ if: "x > 1", next: "read" }], next: "stop" },
  refund: { tool: "refund" },
  stop: { end: "over" },
};
const begun = event("r", 1, "run.accepted", { task: { agent: "boss", task: "t" }, decided_by: "workflow", spec: { kind: "workflow", sections: [{ kind: "workflow", start: "read", steps }] } });
const started = (at, step, name) => event("r", at, "step.started", { step, name });
const left = (at, step, name, next, fields = {}) => event("r", at, "workflow.step_finished", { step, name, next, ...fields });

test("every way is known with its label", () => {
  assert.deepEqual(edgesOf(steps.pay).map(({ key, target, label }) => [key, target, label]), [
    ["when", "read", "x > 1"], ["next", "stop", "else"], ["undo", "refund", "undo"],
  ]);
  assert.deepEqual(edgesOf(steps.stop), []);
});

test("a step is where the run has been, is, or has not come to", () => {
  const tree = applyEvents(emptyTree(), [begun, started(2, 1, "read"), left(3, 1, "read", "sign"), started(4, 2, "sign")]);
  const flow = Object.fromEntries(flowOf(tree.runs.get("r")).map((one) => [one.name, one]));
  assert.deepEqual(Object.values(flow).map(({ name, state, rank }) => [name, state, rank]), [
    ["read", "ok", 0], ["sign", "open", 1], ["stop", "", 1], ["pay", "", 2], ["refund", "", 3],
  ]);
  assert.deepEqual([...flow.read.taken], ["sign"]);
  assert.equal(flow.read.visits, 1);
});

test("a step that failed, and one that is tried again", () => {
  const error = { type: "E", message: "no" };
  const failing = applyEvents(emptyTree(), [begun, started(2, 1, "read"), left(3, 1, "read", "stop", { error })]);
  assert.equal(flowOf(failing.runs.get("r"))[0].state, "failed");
  const again = applyEvents(emptyTree(), [begun, started(2, 1, "read"), left(3, 1, "read", "", { error, retry: true })]);
  assert.equal(flowOf(again.runs.get("r"))[0].state, "open");
});
