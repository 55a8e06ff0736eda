// The form of a held call sends untouched values as they came, digit by digit.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseJson, writeJson } from "../../services/cadre_gateway/console/web/exact_json.js";
import { argumentForm } from "../../services/cadre_gateway/console/web/view/argument_form.js";
import { proposalForm } from "../../services/cadre_gateway/console/web/view/proposal_form.js";
import { openPage } from "./page.mjs";

openPage();

const held = (args) => parseJson(`{"arguments":${args}}`).arguments;
const typed = (schema) => ({ type: "object", properties: schema });
const fieldOf = (form, name) => form.element.all("label").find((one) => one.textContent.startsWith(name)).children.at(-1);
const sent = (form) => writeJson(form.read());

test("a person corrects the amount, and the account keeps its number", () => {
  const args = held('{"account":9007199254740993,"amount":500,"rate":1.10,"nested":{"ids":[18446744073709551617,-0]}}');
  for (const schema of [null, typed({ account: { type: "integer" }, amount: { type: "number" }, rate: { type: "number" } })]) {
    const form = argumentForm(args, schema);
    assert.equal(form.changed(), false);
    assert.equal(fieldOf(form, "account").value, "9007199254740993");
    assert.equal(fieldOf(form, "rate").value, "1.10");
    fieldOf(form, "amount").value = "90";
    assert.equal(form.changed(), true);
    assert.equal(sent(form), '{"account":9007199254740993,"amount":90,"rate":1.10,"nested":{"ids":[18446744073709551617,-0]}}');
  }
});

test("what a person types is sent as it is typed", () => {
  const form = argumentForm(held('{"amount":1}'), typed({ amount: { type: "number" } }));
  for (const text of ["9007199254740993", "0.1000000000000000055", "1e400", "1.10", "-0"]) {
    fieldOf(form, "amount").value = text;
    assert.equal(sent(form), `{"amount":${text}}`);
  }
  fieldOf(form, "amount").value = "1,5";
  assert.throws(() => form.read(), /amount/);
});

test("a form and its JSON are two views of one value", () => {
  const form = argumentForm(held('{"to":9007199254740993}'), typed({ to: { type: "integer" }, note: { type: "string" } }));
  const [toggle] = form.element.all("button");
  const raw = () => form.element.all("textarea").find((one) => one.attributes["aria-label"] === "Arguments as JSON");
  toggle.click();
  assert.equal(raw().value, '{\n  "to": 9007199254740993\n}');
  assert.equal(form.changed(), false);
  raw().value = '{"to": 9007199254740995, "note": 7, "more": [1.0]}';
  toggle.click();
  assert.equal(sent(form), '{"to":9007199254740995,"note":7,"more":[1.0]}');
  toggle.click();
  raw().value = '{"to": 1, "to": 2}';
  assert.throws(() => form.read(), /"to"/);
});

test("no field makes another value of one that it cannot show", () => {
  const args = { flag: null, colour: "mauve", note: "a\r\nb", line: "a\rb", list: null, "__proto__x": 1 };
  const schema = typed({
    colour: { enum: ["red"] }, flag: { type: ["boolean", "null"] }, note: { type: "string" }, line: { type: "string" }, list: { enum: ["x"] },
  });
  const form = argumentForm(args, schema);
  assert.equal(form.changed(), false);
  fieldOf(form, "colour").value = "red";
  assert.deepEqual(form.read(), { ...args, colour: "red" });
});

test("arguments in another order than the schema's are not changed by that", () => {
  assert.equal(argumentForm({ b: 1, a: 2 }, typed({ a: { type: "integer" }, b: { type: "integer" } })).changed(), false);
});

test("an argument with a name that objects have of old is one like others", () => {
  const args = held('{"__proto__":{"to":9007199254740993},"constructor":1.0}');
  assert.equal(sent(argumentForm(args, null)), '{"__proto__":{"to":9007199254740993},"constructor":1.0}');
});

test("the calls of a proposal keep their numbers", () => {
  const form = proposalForm(held('{"calls":[{"name":"pay","arguments":{"to":9007199254740993,"amount":5}},{"name":"pay","arguments":{"to":1.0}}]}').calls);
  assert.deepEqual(form.edits(), []);
  fieldOf(form, "amount").value = "4";
  assert.equal(writeJson(form.edits()), '[{"call":1,"arguments":{"to":9007199254740993,"amount":4}}]');
});
