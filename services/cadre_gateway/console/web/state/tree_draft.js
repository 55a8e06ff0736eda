// A tree of runs under change: what changes is copied once, the rest is shared with the tree before. Pure.

/** A tree of runs under change. */
export class Draft {
  constructor(tree) {
    this.tree = { ...tree, runs: new Map(tree.runs) };
    this.own = new WeakSet(); // what was copied already, and may be changed in place
  }

  /** The run of an event, as a copy that may be changed. */
  run(data) {
    let run = this.tree.runs.get(data.run);
    if (run && this.own.has(run)) return run;
    run = run ? { ...run, steps: [...run.steps], usage: { ...run.usage } } : newRun(data);
    this.own.add(run);
    this.tree.runs.set(run.id, run);
    this.tree.root ??= run.id;
    return run;
  }

  /** The step of this number, as a copy that may be changed; made where there is none. */
  step(run, number, at) {
    let place = run.steps.length - 1;
    while (place >= 0 && run.steps[place].number !== number) place -= 1;
    let step = run.steps[place];
    if (step && this.own.has(step)) return step;
    step = step
      ? { ...step, items: [...step.items] }
      : { number, name: "", startedAt: at, endedAt: null, error: null, items: [] };
    this.own.add(step);
    if (place >= 0) run.steps[place] = step;
    else run.steps.push(step);
    return step;
  }

  push(run, number, item, at) {
    this.step(run, number, at).items.push(item);
  }

  /** Something that is told and has no duration. */
  note(run, name, event, at, text = "") {
    const changesPlan = /^(plan|queue|edit|workflow|solution)\./.test(name);
    if (changesPlan) run.planned += 1;
    if (/^(plan|queue)\./.test(name)) run.list = name.split(".")[0];
    this.push(run, event.step ?? run.step, { type: "note", name, text, event, at, openedAt: at, endedAt: at }, at);
  }

  /** An event that cannot be shown: a note says that there was one. */
  fault(name, data, error) {
    const known = { name, run: data?.run ?? null, seq: data?.seq ?? null, message: String(error?.message ?? error) };
    this.tree.faults = [...this.tree.faults, known];
    if (typeof data?.run !== "string") return;
    const run = this.run(data);
    const at = Number(data.at) || this.tree.last;
    this.push(run, run.step, {
      type: "note", name, text: `cannot be shown: ${known.message}`, event: { type: name, ...data.event }, at, openedAt: at, endedAt: at,
    }, at);
  }

  /** Changes the newest item that fits, by a copy of it; returns whether there was one. */
  change(run, number, fits, changes) {
    for (let place = run.steps.length - 1; place >= 0; place -= 1) {
      const candidate = run.steps[place];
      if (number !== null && candidate.number !== number) continue;
      const index = candidate.items.findLastIndex(fits);
      if (index < 0) continue;
      const step = this.step(run, candidate.number, 0);
      const item = step.items[index];
      step.items[index] = { ...item, ...(typeof changes === "function" ? changes(item) : changes) };
      return true;
    }
    return false;
  }

  delta(data) {
    if (!this.tree.runs.has(data.run)) return;
    const run = this.run(data);
    const fits = (item) =>
      item.type === "model" && item.state === "open" && item.attempt === data.attempt && item.purpose === data.purpose;
    this.change(run, data.step, fits, (item) => {
      if (data.seq <= item.pieces) return {};
      return { text: item.text + data.text, pieces: data.seq, gap: item.gap || data.seq !== item.pieces + 1 };
    });
  }

  open(run, event, at, call) {
    const number = stepOf(run, event.call);
    const reopened = this.change(run, number, isCall(event.call), (item) =>
      item.state === "held" || item.state === "open"
        ? { ...call, state: "open", askedAt: item.openedAt, openedAt: at, hold: null }
        : {});
    if (!reopened) this.push(run, number, { ...newCall(event.call, at), ...call }, at);
    this.settle(run);
  }

  close(run, event, at, result) {
    this.change(run, stepOf(run, event.call), isCall(event.call), (item) =>
      item.state === "failed" ? {} : { endedAt: at, hold: null, ...result });
    this.settle(run);
  }

  /** Ends the run: nothing in it is open any more. */
  end(run, how, at) {
    Object.assign(run, { doing: "", awaits: null, held: 0, endedAt: at, ...how });
    for (const { number, items } of run.steps) {
      if (items.some(isPending)) endPending(this.step(run, number, at), at);
    }
  }

  /** The state of a run follows from its calls, as long as it goes on. */
  settle(run) {
    if (run.endedAt !== null) return;
    run.held = 0;
    for (const { items } of run.steps) for (const item of items) if (item.state === "held") run.held += 1;
    run.state = run.held ? "waiting" : "running";
    run.doing = run.held ? "waiting for approval" : "";
  }
}

/** Whether an item is the call with this id. */
export const isCall = (id) => (item) => item.type === "call" && item.id === id;

/** The step of a call: call ids are `<run>_<step>_<index>`. */
export function stepOf(run, call) {
  const rest = String(call ?? "").startsWith(`${run.id}_`) ? call.slice(run.id.length + 1) : "";
  const number = Number.parseInt(rest, 10);
  return Number.isNaN(number) ? run.step : number;
}

function newCall(id, at) {
  return {
    type: "call", kind: "tool", id, name: "", arguments: {}, state: "open", openedAt: at, startedAt: null, endedAt: null,
    result: undefined, error: null, hold: null, decision: null, blob: null, executor: "",
  };
}

function newRun(data) {
  return {
    id: data.run, agent: data.agent ?? "", parent: data.parent ?? null, task: "", inputs: {}, images: [], kind: "",
    state: "running", doing: "", step: 0, maxSteps: null, deadline: null, missing: [], steps: [], held: 0,
    usage: { input: 0, output: 0, calls: 0, cost: 0 }, model: "", startedAt: data.at ?? null, endedAt: null,
    output: undefined, error: null, awaits: null, planned: 0, list: null, cancelling: false, forked: 0,
    workflow: null, revision: "", tools: [], offers: 0,
  };
}

const isPending = (item) => item.state === "open" || item.state === "held";

function endPending(step, at) {
  step.items = step.items.map((item) => (isPending(item) ? { ...item, state: "dropped", hold: null, endedAt: at } : item));
  step.endedAt ??= at;
}
