// The forms of definitions read what is typed, and leave what nobody touched as it is.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseJson, writeJson } from "../../services/cadre_gateway/console/web/exact_json.js";
import { KINDS, readSpec, shownOf, specOf } from "../../services/cadre_gateway/console/web/state/definitions.js";

const typing = (kind, before, changes) => (key) => (Object.hasOwn(changes, key) ? changes[key] : shownOf(KINDS[kind].fields.find((one) => one.key === key), before));
const read = (kind, changes, before = {}) => readSpec(kind, typing(kind, before, changes), before);

test("each kind is read from its fields, numbers digit by digit, lists by commas", () => {
  assert.equal(writeJson(read("budget", { window: "day", tokens: "9007199254740993", cost: "1.10" })), '{"window":"day","tokens":9007199254740993,"cost":1.10}');
  assert.deepEqual(read("trigger", { agent: "a", task: "t", "webhook.secret_env": "S", plan: "x, y" }), { agent: "a", task: "t", webhook: { secret_env: "S" }, plan: ["x", "y"] });
  assert.equal(writeJson(read("schedule", { agent: "a", task: "t", every: "90", jitter: "5s" })), '{"agent":"a","task":"t","every":90,"jitter":"5s"}');
});

test("a change leaves what it does not touch, and an emptied field goes", () => {
  const before = parseJson('{"agent":"a","task":"t","every":"10m","count":9007199254740993,"options":{"inputs":{"n":1.0}},"unheard":[1]}');
  assert.equal(writeJson(read("schedule", { every: "2h" }, before)), '{"agent":"a","task":"t","every":"2h","count":9007199254740993,"options":{"inputs":{"n":1.0}},"unheard":[1]}');
  assert.deepEqual(read("trigger", { "webhook.secret_env": "" }, { agent: "a", task: "t", subject: "s", webhook: { secret_env: "S", tolerance: 5 } }), { agent: "a", task: "t", subject: "s" });
});

test("what is wrong is named with its field, in words", () => {
  for (const [kind, changes, field, words] of [
    ["budget", { window: "day", tokens: "lots" }, "tokens", /“lots” is not a number/], ["budget", { window: "day", tokens: '"7"' }, "tokens", /not a number/],
    ["budget", { window: "day" }, "tokens", /Tokens at most or Cost at most/], ["schedule", { agent: "a", task: "t" }, "every", /Every or Cron/],
    ["schedule", { agent: "a", task: "t", every: "1d", options: "[1]" }, "options", /object/], ["schedule", { agent: "a", task: "t", every: "1d", options: "{" }, "options", /not JSON/],
    ["notice", { url: "" }, "url", /missing/],
  ]) assert.throws(() => read(kind, changes), (error) => error.field === field && words.test(error.message), `${kind} ${field}`);
});

test("what only the view of a definition has is not written back", () => {
  assert.deepEqual(specOf("notice", { name: "n", url: "u", secret_env: "S", paused: true, maker: "ann", paused_for: "" }), { url: "u", secret_env: "S", paused: true });
  assert.deepEqual(specOf("budget", { name: "b", spec: { window: "day" }, share: 1 }), { window: "day" });
});
