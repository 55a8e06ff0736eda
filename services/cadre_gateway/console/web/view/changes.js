// Old and new arguments of a call that a person changed.

import { changesOf, editsOf, lineChanges } from "../state/changes.js";
import { h, table } from "./element.js";
import { showValue } from "./value.js";

/** The differences of two objects as a table; null where there is none. */
export function showChanges(before, after) {
  return drawn(changesOf(before, after));
}

/** What a decision changed about a call; null where it changed nothing. */
export function showDecided({ name, arguments: before }, decision) {
  if (decision.edits?.length) {
    return h("div", null, editsOf(before.calls ?? [], decision.edits).map(({ title, changes }) => [h("h4", null, title), drawn(changes)]));
  }
  const other = decision.tool && decision.tool !== name;
  if (!other && !decision.arguments) return null;
  return h("div", null, other && h("p", null, h("del", null, name), " ", h("ins", null, decision.tool)), decision.arguments && showChanges(before, decision.arguments));
}

function drawn(changes) {
  return changes.length ? h("div", { class: "changes" }, table(["Argument", "Before", "After"], changes.map(cells))) : null;
}

function cells({ path, before, after }) {
  const texts = [before, after].every((one) => typeof one === "string") && `${before}${after}`.includes("\n");
  if (!texts) return [h("code", null, path), side("del", before), side("ins", after)];
  const lines = lineChanges(before, after);
  const of = (tag, mark) => h("pre", null, lines.filter((one) => one.mark === " " || one.mark === mark).map(({ mark: own, text }) => [own === " " ? text : h(tag, null, text), "\n"]));
  return [h("code", null, path), of("del", "-"), of("ins", "+")];
}

const side = (tag, value) => (value === undefined ? h("span", { class: "none" }, "–") : h(tag, null, showValue(value, 1)));
