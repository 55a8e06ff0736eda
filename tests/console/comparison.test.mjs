import assert from "node:assert/strict";
import { test } from "node:test";

import { same } from "../../services/cadre_gateway/console/web/exact_json.js";
import { compareTrees } from "../../services/cadre_gateway/console/web/state/comparison.js";
import { applyEvents, emptyTree } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { accepted, answered, asked, event } from "./story.mjs";

const story = (id, at, city, steps = 1) => {
  const events = [accepted(id, at, { task: "the weather" })];
  for (let step = 1; step <= steps; step += 1) {
    const call = `${id}_${step}_0`;
    events.push(asked(id, at, step), answered(id, at + 1, step),
      event(id, at + 1, "tool.called", { call, tool: "weather", arguments: { city } }),
      event(id, at + 2, "tool.answered", { call, output: "rain", seconds: 1 }),
      event(id, at + 2, "step.finished", { step }));
  }
  events.push(event(id, at + 3, "run.finished", { state: "success", output: "rain" }));
  return applyEvents(emptyTree(), events);
};
const differing = (found) => found.facts.filter((one) => one.differs).map((one) => one.name);

test("runs that did the same at other times under other ids do not differ", () => {
  const found = compareTrees(story("a1", 10, "Bern"), story("b2", 99, "Bern"));
  assert.deepEqual(differing(found), []);
  assert.deepEqual(found.steps.map((one) => one.differs), [false]);
});

test("a step with other arguments differs, and one that the other run has not", () => {
  const found = compareTrees(story("a1", 10, "Bern"), story("b2", 10, "Rome", 2));
  assert.deepEqual(found.steps.map((one) => [one.number, one.differs, one.sides.map(Boolean)]), [
    [1, true, [true, true]], [2, true, [false, true]],
  ]);
  assert.deepEqual(differing(found), ["Steps", "Tools used", "Model calls", "Tokens in", "Tokens out", "Cost"]);
  assert.deepEqual(found.facts.find((one) => one.name === "Tools used").values, ["weather", "weather ×2"]);
});

test("values are compared whatever the order of their keys", () => {
  assert.ok(same({ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 }));
  assert.ok(!same({ a: 1 }, { a: 1, b: undefined }));
  assert.ok(!same([1], { 0: 1 }));
  assert.ok(!same(null, {}));
});
