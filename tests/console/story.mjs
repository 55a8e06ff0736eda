// Rows and pieces of answers for tests of the console, as the gateway's stream has them.

let seq = 0;

/** An event with these rows. */
export function rows(...changed) {
  seq += 1;
  return { name: "rows", data: { seq, rows: changed.map((one) => ({ ...one, seq })) } };
}

/** The rows of a run with this id: itself, its steps, and what is in them. `n` is the position of the entry that made it. */
export const run = (id, fields = {}) => ({
  key: `run:${id}`, parent: id.includes("_") ? `call:${id}` : "", run: id, kind: "run", name: id.includes("_") ? "helper" : "boss",
  brief: `task of ${id}`, asked_at: 1, began_at: 1, facts: {}, events: [[1, 1]], ...fields,
});
export const step = (id, number, fields = {}) => ({
  key: `step:${id}:${number}`, parent: `run:${id}`, run: id, kind: "step", name: `Step ${number}`, asked_at: 1, began_at: 1, events: [[number * 10, 1]], ...fields,
});
export const model = (id, number, fields = {}) => ({
  key: `model:${id}:${number * 10}.1`, parent: `step:${id}:${number}`, run: id, kind: "model", name: "thinking", asked_at: 1,
  asked_for: { step: number, purpose: "act", attempt: 1 }, events: [[number * 10, 1]], ...fields,
});
export const call = (id, number, index, fields = {}) => ({
  key: `call:${id}_${number}_${index}`, parent: `step:${id}:${number}`, run: id, kind: "call", name: "look", asked_at: 2, events: [[number * 10 + 1, index + 1]], ...fields,
});
export const delta = (id, number, text, piece, attempt = 1) =>
  ({ name: "delta", data: { run: id, agent: "boss", step: number, attempt, purpose: "act", text, seq: piece } });
