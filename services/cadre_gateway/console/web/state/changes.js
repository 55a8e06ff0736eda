// What a person changed about a call: old and new values, side by side. Pure.

import { isObject, same } from "../exact_json.js";

/** The values that differ between two JSON objects: `{path, before, after}`, `undefined` where there is none. */
export function changesOf(before, after, path = "") {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names.flatMap((name) => {
    const [old, now] = [before, after].map((one) => (Object.hasOwn(one ?? {}, name) ? one[name] : undefined));
    const where = path ? `${path}.${name}` : name;
    if (same(old, now)) return [];
    return isObject(old) && isObject(now) ? changesOf(old, now, where) : [{ path: where, before: old, after: now }];
  });
}

/** Lines of two texts: `{mark, text}` with mark " ", "-" or "+"; what both begin and end with stands once. */
export function lineChanges(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const marked = (lines, mark) => lines.map((text) => ({ mark, text }));
  return [
    ...marked(old.slice(0, head), " "), ...marked(old.slice(head, old.length - tail), "-"),
    ...marked(now.slice(head, now.length - tail), "+"), ...marked(old.slice(old.length - tail), " "),
  ];
}

/** What the edits of a proposal did to its calls, one entry for each: `{title, changes}`. */
export function editsOf(calls, edits) {
  return edits.map((edit) => {
    if (!edit.call) return { title: `added: ${edit.tool}`, changes: changesOf({}, edit.arguments) };
    const call = calls[edit.call - 1] ?? { name: "?", arguments: {} };
    if (edit.drop) return { title: `call ${edit.call} (${call.name}): left out`, changes: [] };
    const other = edit.tool && edit.tool !== call.name;
    const after = other ? edit.arguments : { ...call.arguments, ...edit.arguments };
    return { title: `call ${edit.call} (${call.name})${other ? `: ${edit.tool} in its place` : ""}`, changes: changesOf(call.arguments, after ?? {}) };
  });
}
