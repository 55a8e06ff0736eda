// Tells of a run of 5,000 events or a tree of RUNS runs, then of 50 events a second for SECONDS, and counts long tasks.
const told = { seq: 0, done: false, over: [], longest: 0 };
window.told = told;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (told.live) {
    told.longest = Math.max(told.longest, one.duration);
    if (one.duration > 100) told.over.push(one.duration);
  }
}).observe({ type: "longtask" });
const wire = (run, name, fields) => {
  told.seq += 1;
  const data = { seq: told.seq, n: told.seq, run, parent: run === "a1" ? null : "a1", agent: "boss", at: Date.now() / 1000, event: { type: name, ...fields } };
  return `event: ${name}\nid: ${told.seq}\ndata: ${JSON.stringify(data)}\n\n`;
};
const step = (run, number) => [
  wire(run, "model.called", { purpose: "act", step: number, attempt: 1 }),
  wire(run, "model.answered", { purpose: "act", step: number, attempt: 1, content: "so", usage: { input_tokens: 9, output_tokens: 1 } }),
  wire(run, "step.finished", { step: number }),
];
const accepted = (run) => wire(run, "run.accepted", { task: { agent: "boss", task: "work" }, spec: {} });
function* history() {
  yield accepted("a1");
  if (RUNS === 1) for (let number = 1; number <= 1667; number += 1) yield* step("a1", number);
  else for (let member = 0; member < RUNS - 1; member += 1) {
    const id = `a1_1_${member}`;
    yield wire("a1", "delegate.started", { call: id, member: "helper", task: "help" });
    yield accepted(id);
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
