// What a conversation shows of a run that goes on.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyTree, takeEvents } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { heldCalls, writing } from "../../services/cadre_gateway/console/web/state/turn.js";
import { call, delta, model, rows, run, step } from "./story.mjs";

test("the answer grows, and what waits below is there to be decided", () => {
  const tree = emptyTree("r");
  takeEvents(tree, [rows(run("r"), step("r", 1), model("r", 1)), delta("r", 1, "One ", 1), delta("r", 1, "moment.", 2)]);
  assert.equal(writing(tree).text, "One moment.");
  assert.deepEqual(heldCalls(tree), []);
  takeEvents(tree, [
    rows(call("r", 1, 0, { name: "helper" }), call("r", 1, 1), run("r_1_0", { state: "waiting", words: "waiting for approval" }), step("r_1_0", 1)),
    rows(call("r_1_0", 1, 0, { name: "pay", state: "held" })),
  ]);
  assert.deepEqual(heldCalls(tree).map(({ key, name }) => [key, name]), [["call:r_1_0_1_0", "pay"]]);
  assert.equal(writing(tree).doing, "calling look; helper: waiting for approval");
});
