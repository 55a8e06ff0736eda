// What a conversation shows of a run that goes on.

import assert from "node:assert/strict";
import { test } from "node:test";

import { applyEvents, emptyTree } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { heldCalls, writing } from "../../services/cadre_gateway/console/web/state/turn.js";
import { accepted, asked, delta, event } from "./story.mjs";

test("the answer grows, and what waits below is there to be decided", () => {
  const first = applyEvents(emptyTree(), [accepted("r", 1), asked("r", 2, 1), delta("r", 1, "One ", 1), delta("r", 1, "moment.", 2)]);
  assert.equal(writing(first).text, "One moment.");
  assert.deepEqual(heldCalls(first), []);
  const later = applyEvents(first, [
    accepted("r_1_0", 3), event("r_1_0", 4, "approval.requested", { call: "r_1_0_1_0", name: "pay", kind: "tool", arguments: { amount: 5 } }),
  ]);
  assert.deepEqual(heldCalls(later).map((item) => [item.id, item.name]), [["r_1_0_1_0", "pay"]]);
  assert.match(writing(later).doing, /helper: waiting for approval/);
});
