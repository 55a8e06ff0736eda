// The graph of a workflow, and where a run has been in it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { edgesOf, flowOf } from "../../services/cadre_gateway/console/web/state/workflow.js";
import { run, step } from "./story.mjs";

const steps = {
  read: { tool: "read", next: "sign", on_error: "stop" },
  sign: { approve: { question: "ok?", yes: "pay", no: "stop" } },
  pay: { tool: "pay", undo: "refund", when: [{ if: "x > 1", next: "read" }], next: "stop" },
  refund: { tool: "refund" },
  stop: { end: "over" },
};
const workflow = { kind: "workflow", start: "read", steps };
const entered = (number, words, state) => step("r", number, { words, state });
const flow = (going, ...rows) => Object.fromEntries(flowOf(workflow, run("r", { state: "open", ended_at: 0, ...going }), rows).map((one) => [one.name, one]));

test("every way is known with its label", () => {
  assert.deepEqual(edgesOf(steps.pay).map(({ key, target, label }) => [key, target, label]), [
    ["when", "read", "x > 1"], ["next", "stop", "else"], ["undo", "refund", "undo"],
  ]);
  assert.deepEqual(edgesOf(steps.stop), []);
});

test("a step is where the run has been, is, or has not come to", () => {
  const found = flow({}, step("r", 0), entered(1, "read", "ok"), entered(2, "sign", "open"));
  assert.deepEqual(Object.values(found).map(({ name, state, rank }) => [name, state, rank]), [
    ["read", "ok", 0], ["sign", "open", 1], ["stop", "", 1], ["pay", "", 2], ["refund", "", 3],
  ]);
  assert.deepEqual([...found.read.taken], ["sign"]);
  assert.equal(found.read.visits, 1);
  assert.equal(flow({ state: "waiting" }, entered(1, "read", "open")).read.state, "waiting");
});

test("a step that failed, and one that is tried again", () => {
  assert.equal(flow({ state: "failed", ended_at: 3 }, entered(1, "read", "failed")).read.state, "failed");
  assert.equal(flow({}, entered(1, "read", "failed"), entered(2, "stop", "ok")).read.state, "failed");
  assert.equal(flow({}, entered(1, "read", "failed")).read.state, "open");
});
