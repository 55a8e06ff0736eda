import assert from "node:assert/strict";
import { test } from "node:test";

import { same } from "../../services/cadre_gateway/console/web/exact_json.js";
import { compareTrees } from "../../services/cadre_gateway/console/web/state/comparison.js";
import { emptyTree, takeEvents } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { call, rows, run, step } from "./story.mjs";

/** A run as its rows and its account have it. */
const story = (id, at, city, steps = 1) => {
  const tree = emptyTree(id);
  const numbers = Array.from({ length: steps }, (_, index) => index + 1);
  takeEvents(tree, [
    rows(run(id, { began_at: at, ended_at: at + 3, state: "ok", usage: { input_tokens: 9 * steps, output_tokens: steps, model_calls: steps, cost: steps }, facts: { ended: "success" } })),
    ...numbers.map((number) => rows(step(id, number), call(id, number, 0, { name: "weather" }))),
  ]);
  const memory = numbers.map((number) => ({ type: "action", number, content: "so", calls: [{ id: `${id}_${number}_0`, kind: "tool", name: "weather", arguments: { city }, observation: "rain" }] }));
  return { tree, run: { task: "the wea…", output: "rain", memory: [{ type: "task", task: "the weather" }, ...memory] } };
};
const compare = (...told) => compareTrees(told.map(({ tree }) => tree), told.map((one) => one.run));
const differing = (found) => found.facts.filter((one) => one.differs).map((one) => one.name);

test("runs that did the same at other times under other ids do not differ", () => {
  const found = compare(story("a1", 10, "Bern"), story("b2", 99, "Bern"));
  assert.deepEqual(differing(found), []);
  assert.deepEqual(found.steps.map((one) => one.differs), [false]);
});

test("a step with other arguments differs, and one that the other run has not", () => {
  const found = compare(story("a1", 10, "Bern"), story("b2", 10, "Rome", 2));
  assert.deepEqual(found.steps.map((one) => [one.number, one.differs, one.sides.map(Boolean)]), [
    [1, true, [true, true]], [2, true, [false, true]],
  ]);
  assert.deepEqual(differing(found), ["Steps", "Tools used", "Model calls", "Tokens in", "Tokens out", "Cost"]);
  assert.deepEqual(found.facts.find((one) => one.name === "Task").values, ["the weather", "the weather"]);
  assert.deepEqual(found.facts.find((one) => one.name === "Tools used").values, ["weather", "weather ×2"]);
});

test("values are compared whatever the order of their keys", () => {
  assert.ok(same({ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 }));
  assert.ok(!same({ a: 1 }, { a: 1, b: undefined }));
  assert.ok(!same([1], { 0: 1 }));
  assert.ok(!same(null, {}));
});
