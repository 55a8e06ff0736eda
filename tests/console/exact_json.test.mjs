// Numbers keep their digits wherever the page reads, shows, compares and writes JSON.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ExactNumber, parseJson, parseWritten, same, writeJson } from "../../services/cadre_gateway/console/web/exact_json.js";
import { compareTrees } from "../../services/cadre_gateway/console/web/state/comparison.js";
import { changesOf, editsOf } from "../../services/cadre_gateway/console/web/state/changes.js";
import { emptyTree, takeEvents } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { readEvent } from "../../services/cadre_gateway/console/web/http/sse.js";
import { argumentsText, brief } from "../../services/cadre_gateway/console/web/view/format.js";
import { rows, run } from "./story.mjs";

const NUMBERS = [
  "9007199254740993", "-9007199254740993", "18446744073709551616", "123456789012345678901234567890", "1".repeat(400),
  "0.1000000000000000055", "123456789012345678.25", "1e400", "-1E+400", "1e-400", "1e999999999999999999999",
  "1.0", "1.10", "-0", "-0.0", "0.0", "1e5", "1E5", "100e-2", "5e-324", "4.9e-324",
];

test("every number is written as it was read", () => {
  for (const text of NUMBERS) {
    for (const json of [text, `[${text}]`, `{"a":{"b":[${text},{"c":${text}}]}}`]) {
      assert.equal(writeJson(parseWritten(json)), json);
      assert.equal(writeJson(parseJson(`{"arguments":${json}}`)), `{"arguments":${json}}`);
    }
  }
});

test("what the page counts with is a number, unless that would change its value", () => {
  const told = parseJson('{"at":1733000000.0,"seconds":1e2,"usage":{"cost":0.10},"id":9007199254740993,"arguments":{"at":1.0}}');
  assert.deepEqual([told.at, told.seconds, told.usage.cost], [1733000000, 100, 0.1]);
  assert.ok(told.id instanceof ExactNumber && told.arguments.at instanceof ExactNumber);
  assert.equal(`${told.id}`, "9007199254740993");
});

test("other JSON is read and written as by the language itself", () => {
  const texts = [
    '{"a":[1,2.5,-3,true,false,null,"x"],"":{},"b":[],"10":1,"2":2}', '"\\u00e9\\ud800\\n\\"\\\\"', ' [ 1 , { "a" : "}" } ] ', '"\\\\"', "0", '{"__proto__":{"a":1}}',
  ];
  for (const text of texts) {
    assert.deepEqual(parseJson(text), JSON.parse(text));
    assert.equal(writeJson(parseJson(text)), JSON.stringify(JSON.parse(text)));
    assert.equal(writeJson(parseJson(text), 2), JSON.stringify(JSON.parse(text), null, 2));
  }
  assert.equal(writeJson({ a: undefined, b: [undefined] }), '{"b":[null]}');
  for (const text of ["", "{", "[1,]", '{"a"}', '{"a":}', "01", "1.", "+1", ".5", "1e", "nul", "NaN", '"a\nb"', '"\\x"', "[1]]", "'a'", '{a:1}', "-", "1 2", "Infinity"]) {
    assert.throws(() => JSON.parse(text), SyntaxError);
    assert.throws(() => parseJson(text), SyntaxError, text);
  }
});

test("a key that a person writes twice is refused, and read from elsewhere the last one counts", () => {
  assert.throws(() => parseWritten('{"a":{"to":1,"to":2}}'), /"to"/);
  assert.deepEqual(parseJson('{"to":1,"to":2}'), { to: 2 });
});

test("JSON that is deep and JSON that is long are read in good time", () => {
  const deep = `${"[".repeat(900)}1${"]".repeat(900)}`;
  assert.equal(writeJson(parseJson(deep)), deep);
  const long = `{"output":[${Array.from({ length: 50_000 }, (_, at) => `{"id":${at},"text":"some words","at":1733000000.5}`).join(",")}]}`;
  const begin = performance.now();
  assert.equal(parseJson(long).output.length, 50_000);
  const took = performance.now() - begin;
  console.log(`${(long.length / 1e6).toFixed(1)} MB in ${took.toFixed(0)} ms`);
  assert.ok(took < 2_000, `${took} ms`);
});

test("values that differ beyond 2^53 differ, and equal ones do not", () => {
  const [one, other] = ["9007199254740993", "9007199254740992"].map((text) => parseWritten(`{"to":${text},"list":[${text}]}`));
  assert.ok(!same(one, other));
  assert.ok(same(one, parseWritten(writeJson(one))));
  assert.deepEqual(changesOf(one, other).map(({ path, before, after }) => [path, `${before}`, `${after}`]).slice(0, 1), [
    ["to", "9007199254740993", "9007199254740992"],
  ]);
  const [edited] = editsOf([{ name: "pay", arguments: one }], [{ call: 1, arguments: other }]);
  assert.equal(edited.changes.length, 2);
});

test("an event's numbers keep each digit, in a value and in a comparison", () => {
  const [one, other] = ["9007199254740993", "9007199254740992"].map((text) => {
    const memory = `[{"type":"action","number":1,"calls":[{"kind":"tool","name":"pay","arguments":{"to":${text}}}]}]`;
    return readEvent({ name: "run", data: `{"task":"t","output":${text},"memory":${memory}}` }).data;
  });
  assert.equal(argumentsText(one.memory[0].calls[0].arguments), "to=9007199254740993");
  assert.equal(brief(one.output), "9007199254740993");
  const trees = ["r", "s"].map(emptyTree);
  trees.forEach((tree, side) => takeEvents(tree, [rows(run("rs"[side]))]));
  const found = compareTrees(trees, [one, other]);
  assert.deepEqual([found.facts.find(({ name }) => name === "Answer").differs, found.steps[0].differs], [true, true]);
});
