// What a person changed about a call.

import assert from "node:assert/strict";
import { test } from "node:test";

import { changesOf, editsOf, lineChanges } from "../../services/cadre_gateway/console/web/state/changes.js";

test("only what differs is told, as deep as it lies", () => {
  const before = { amount: 500, to: { name: "Ann", city: "Bern" }, note: "x", list: [1, 2] };
  const after = { amount: 90, to: { name: "Ann", city: "Basel" }, list: [1, 2], why: "less" };
  assert.deepEqual(changesOf(before, after), [
    { path: "amount", before: 500, after: 90 }, { path: "to.city", before: "Bern", after: "Basel" },
    { path: "note", before: "x", after: undefined }, { path: "why", before: undefined, after: "less" },
  ]);
  assert.deepEqual(changesOf(before, before), []);
});

test("lines that both texts have stand once", () => {
  const marks = (a, b) => lineChanges(a, b).map(({ mark, text }) => mark + text);
  assert.deepEqual(marks("a\nb\nc", "a\nB\nB2\nc"), [" a", "-b", "+B", "+B2", " c"]);
  assert.deepEqual(marks("a\na", "a"), [" a", "-a"]);
  assert.deepEqual(marks("same", "same"), [" same"]);
});

test("the edits of a proposal are told call by call", () => {
  const calls = [{ name: "pay", arguments: { amount: 5, to: "x" } }, { name: "mail", arguments: {} }];
  const edits = [{ call: 1, arguments: { amount: 4 } }, { call: 2, drop: true }, { tool: "note", arguments: { text: "t" } }];
  assert.deepEqual(editsOf(calls, edits).map(({ title, changes }) => [title, changes.length]), [
    ["call 1 (pay)", 1], ["call 2 (mail): left out", 0], ["added: note", 1],
  ]);
});
