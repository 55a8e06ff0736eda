import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyTree, takeEvents, visibleRows } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { call, model, rows, run, step } from "./story.mjs";

function timed(work) {
  const begin = performance.now();
  work();
  return performance.now() - begin;
}

/** Milliseconds to take in one more event and to find the rows, the best of several. */
function costOfEvent(tree, number) {
  const times = Array.from({ length: 15 }, () => timed(() => {
    takeEvents(tree, [rows(step("a1", number), model("a1", number))]);
    visibleRows(tree, new Map());
  }));
  return Math.min(...times);
}

test("an event of a run of 5,000 rows costs far less than 100 ms", () => {
  const tree = emptyTree("a1");
  takeEvents(tree, [rows(run("a1"))]);
  for (let number = 1; number <= 2500; number += 1) takeEvents(tree, [rows(step("a1", number), model("a1", number))]);
  assert.ok(tree.rows.size > 5000);
  const cost = costOfEvent(tree, 2501);
  console.log(`one event of ${tree.rows.size} rows: ${cost.toFixed(2)} ms`);
  assert.ok(cost < 100, `${cost} ms`);
});

test("an event of a tree of 1,000 runs too", () => {
  const members = Array.from({ length: 999 }, (_, member) => [
    call("a1", 1, member), run(`a1_1_${member}`), step(`a1_1_${member}`, 1), model(`a1_1_${member}`, 1, { state: "ok", ended_at: 2 }),
  ]).flat();
  const tree = emptyTree("a1");
  const building = timed(() => takeEvents(tree, [rows(run("a1"), step("a1", 1)), rows(...members.toReversed())]));
  assert.equal(tree.runs.size, 1000);
  assert.equal(visibleRows(tree, new Map()).length, 2 + 999, "members begin closed");
  const cost = costOfEvent(tree, 2);
  console.log(`1,000 runs at once: ${building.toFixed(0)} ms; one event more: ${cost.toFixed(2)} ms`);
  assert.ok(building < 1000 && cost < 100, `${building} ms, ${cost} ms`);
});
