import assert from "node:assert/strict";
import { test } from "node:test";

import { visibleRows } from "../../services/cadre_gateway/console/web/state/rows.js";
import { applyEvents, emptyTree } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { accepted, answered, asked, event } from "./story.mjs";

function timed(work) {
  const begin = performance.now();
  work();
  return performance.now() - begin;
}

/** A run with this many steps, three events each. */
const longRun = (steps) => {
  const events = [accepted("a1", 1)];
  for (let step = 1; step <= steps; step += 1) {
    events.push(asked("a1", step, step), answered("a1", step, step), event("a1", step, "step.finished", { step }));
  }
  return applyEvents(emptyTree(), events);
};

/** Milliseconds to take in one more event and to find the rows, the best of several. */
function costOfEvent(tree, step) {
  const times = Array.from({ length: 15 }, () => timed(() => {
    const next = applyEvents(tree, [asked("a1", step, step)]);
    visibleRows(next, new Map());
  }));
  return Math.min(...times);
}

test("an event of a run of 5,000 events costs far less than 100 ms", () => {
  const tree = longRun(1667);
  assert.ok(tree.events > 5000);
  const cost = costOfEvent(tree, 1668);
  console.log(`one event of ${tree.events}: ${cost.toFixed(2)} ms`);
  assert.ok(cost < 100, `${cost} ms`);
});

test("an event of a tree of 1,000 runs too", () => {
  const events = [accepted("a1", 1), asked("a1", 1, 1), answered("a1", 1, 1)];
  for (let member = 0; member < 999; member += 1) {
    const id = `a1_1_${member}`;
    events.push(event("a1", 2, "delegate.started", { call: id, member: "helper", task: "help" }), accepted(id, 3), asked(id, 3, 1), answered(id, 4, 1));
  }
  const building = timed(() => applyEvents(emptyTree(), events));
  const tree = applyEvents(emptyTree(), events);
  assert.equal(tree.runs.size, 1000);
  const cost = costOfEvent(tree, 2);
  console.log(`1,000 runs at once: ${building.toFixed(0)} ms; one event more: ${cost.toFixed(2)} ms`);
  assert.ok(cost < 100, `${cost} ms`);
});
