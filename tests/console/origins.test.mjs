// Where the values of a call first stood, as the console shows it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { originsOf } from "../../services/cadre_gateway/console/web/state/origins.js";

test("each argument has its origin, and the place leads to the call that brought it", () => {
  const found = originsOf({ recipient: ["text", "r1_1_0", "read_mail[0].body"], amount: ["nowhere"], to: ["trusted", "", "contacts.email"] });
  assert.deepEqual(found.map(({ argument, origin, isKnown, place, href }) => [argument, origin, isKnown, place, href]), [
    ["recipient", "text", false, "read_mail[0].body", "#/run/r1?at=call%3Ar1_1_0"],
    ["amount", "nowhere", false, "", ""],
    ["to", "trusted", true, "contacts.email", ""],
  ]);
  assert.deepEqual(originsOf(undefined), []);
});
