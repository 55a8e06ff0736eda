// Tells of a run of 5,000 rows or a tree of RUNS runs, then of 50 events a second for SECONDS, and counts long tasks.
const told = { seq: 0, begun: Date.now() / 1000, done: false, over: [], longest: 0 };
window.told = told;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (told.live) {
    told.longest = Math.max(told.longest, one.duration);
    if (one.duration > 100) told.over.push(one.duration);
  }
}).observe({ type: "longtask" });
const wire = (...rows) => {
  told.seq += 1;
  const data = { seq: told.seq, rows: rows.map((row) => ({ ...row, seq: told.seq })) };
  return `event: rows\nid: ${told.seq}\ndata: ${JSON.stringify(data)}\n\n`;
};
const run = (id) => ({ key: `run:${id}`, parent: id === "a1" ? "" : `call:${id}`, run: id, kind: "run", name: "boss", brief: "work", asked_at: told.begun, began_at: told.begun, facts: {}, events: [[1, 1]] });
const step = (id, number) => {
  const at = Date.now() / 1000;
  const own = { key: `step:${id}:${number}`, parent: `run:${id}`, run: id, kind: "step", name: `Step ${number}`, asked_at: at, began_at: at, events: [[3 * number, 1]] };
  const model = { key: `model:${id}:${3 * number}.1`, parent: own.key, run: id, kind: "model", name: "thinking", asked_at: at, asked_for: { step: number, purpose: "act", attempt: 1 }, events: [[3 * number, 1]] };
  const over = { state: "ok", ended_at: at };
  return [wire(run(id), own, model), wire(run(id), { ...model, ...over, text: "so" }), wire(run(id), { ...own, ...over })];
};
function* history() {
  yield wire(run("a1"));
  if (RUNS === 1) for (let number = 1; number <= 2500; number += 1) yield* step("a1", number);
  else for (let member = 0; member < RUNS - 1; member += 1) {
    const id = `a1_1_${member}`;
    yield wire({ key: `call:${id}`, parent: "step:a1:1", run: "a1", kind: "call", name: "helper", asked_at: told.begun, events: [[2, member + 1]] }, run(id));
    yield* step(id, 1);
  }
}
const fetched = window.fetch;
window.fetch = (path, options) => {
  if (!String(path).includes("/events")) return fetched(path, options);
  const encoder = new TextEncoder();
  const body = new ReadableStream({ start(control) {
    control.enqueue(encoder.encode([...history()].join("")));
    let number = 5000;
    setTimeout(() => {
      told.live = true;
      const timer = setInterval(() => step("a1", (number += 1)).forEach((one) => control.enqueue(encoder.encode(one))), 60);
      setTimeout(() => { clearInterval(timer); told.live = false; told.done = true; }, SECONDS * 1000);
    }, 2500);
  } });
  return Promise.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
};
