// Journals for tests of the console, as the gateway's stream tells them.

let seq = 0;

/** An event of a run: `run` is its id, `at` its time. */
export function event(run, at, name, fields = {}) {
  seq += 1;
  const parent = run.includes("_") ? run.split("_").slice(0, -2).join("_") : null;
  return { name, data: { seq, n: seq, run, parent, agent: parent ? "helper" : "boss", at, event: { type: name, ...fields } } };
}

export const accepted = (run, at, fields = {}) =>
  event(run, at, "run.accepted", { task: { agent: run.includes("_") ? "helper" : "boss", task: `task of ${run}`, ...fields }, spec: {} });
export const asked = (run, at, step, attempt = 1) => event(run, at, "model.called", { purpose: "act", step, attempt });
export const answered = (run, at, step, fields = {}) =>
  event(run, at, "model.answered", {
    purpose: "act", step, attempt: 1, content: "so", usage: { input_tokens: 100, output_tokens: 10, cost: 0.5 }, seconds: 1, ...fields,
  });
export const delta = (run, step, text, piece, attempt = 1) =>
  ({ name: "delta", data: { run, agent: "boss", step, attempt, purpose: "act", text, seq: piece } });
