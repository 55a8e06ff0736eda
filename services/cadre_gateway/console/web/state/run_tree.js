// The tree of runs that the events of a stream tell of. Pure: no clock, no DOM. The same reducer shows a live run and
// one of last year. Times are Unix seconds.

/** The tree before the first event. */
export function emptyTree() {
  return { root: null, runs: new Map(), ended: null, last: 0, events: 0 };
}

/**
 * The tree after more events of the stream, each `{name, data}`. Give each journal event once: tokens are summed.
 * Nothing of `tree` is changed: what did not change is shared.
 */
export function applyEvents(tree, events) {
  const draft = new Draft(tree);
  for (const { name, data } of events) draft.apply(name, data);
  return draft.tree;
}

/** Words for an error of a run, a step or a call; empty without one. */
export function errorText(error) {
  if (!error) return "";
  const ofCall = error.type === "AgentToolExecutionError" || error.type === "AgentToolCallError";
  return ofCall ? withoutCall(error.message ?? "") : `${error.type}: ${error.message}`;
}

/** The message without the tool's name and arguments, which stand beside it anyway. */
function withoutCall(message) {
  const head = /^(Error executing tool|Invalid call of tool) \S+ with arguments \{/.exec(message);
  if (!head) return message;
  let depth = 1;
  for (let at = head[0].length; at < message.length; at += 1) {
    if (message[at] === '"') at = endOfString(message, at);
    else if (message[at] === "{") depth += 1;
    else if (message[at] === "}") depth -= 1;
    if (depth === 0) return message.slice(at + 1).replace(/^: /, "");
  }
  return message; // long arguments are cut
}

function endOfString(text, from) {
  let at = from + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at;
}

/** Whether the run has ended. */
export const isOver = (run) => run.endedAt !== null;

/** All items of a run, in the order of its steps. */
export function* itemsOf(run) {
  for (const step of run.steps) yield* step.items;
}

/** Sums over a run and all runs below it. */
export function totals(tree, id) {
  const sum = { input: 0, output: 0, calls: 0, cost: 0, runs: 0, held: 0 };
  for (const run of tree.runs.values()) {
    if (run.id !== id && !run.id.startsWith(`${id}_`)) continue;
    sum.runs += 1;
    for (const key of ["input", "output", "calls", "cost"]) sum[key] += run.usage[key];
    sum.held += run.held;
  }
  return sum;
}

function newRun(data) {
  return {
    id: data.run, agent: data.agent ?? "", parent: data.parent ?? null, task: "", args: {}, images: [], kind: "",
    state: "running", doing: "", step: 0, maxSteps: null, deadline: null, missing: [], steps: [], held: 0,
    usage: { input: 0, output: 0, calls: 0, cost: 0 }, model: "", startedAt: data.at ?? null, endedAt: null,
    output: undefined, error: null, awaits: null, planned: 0, cancelling: false, forked: 0,
  };
}

const PURPOSES = {
  plan: "planning", act: "thinking", summarize: "summarizing", make_plan: "making a plan", replan: "planning anew",
  conclude: "writing the answer", final: "writing the answer",
};

/** What a run does while its model is asked for this purpose. */
export const purposeText = (purpose) => PURPOSES[purpose] ?? (purpose || "thinking").replaceAll("_", " ");

class Draft {
  constructor(tree) {
    this.tree = { ...tree, runs: new Map(tree.runs) };
    this.own = new WeakSet(); // what was copied already, and may be changed in place
  }

  apply(name, data) {
    if (name === "end") {
      this.tree.ended = data.state;
      return;
    }
    if (typeof data?.run !== "string") return;
    if (name === "delta") {
      this.delta(data);
      return;
    }
    const run = this.run(data);
    const at = Number(data.at) || 0;
    this.tree.last = Math.max(this.tree.last, at);
    this.tree.events += 1;
    const event = data.event ?? {};
    const handler = HANDLERS[name];
    if (handler) handler(this, run, event, at);
    else this.note(run, name, event, at);
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
    this.push(run, event.step ?? run.step, { type: "note", name, text, event, at, openedAt: at, endedAt: at }, at);
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
    for (const item of itemsOf(run)) if (item.state === "held") run.held += 1;
    run.state = run.held ? "waiting" : "running";
    run.doing = run.held ? "waiting for approval" : "";
  }
}

const isCall = (id) => (item) => item.type === "call" && item.id === id;

/** The step of a call: call ids are `<run>_<step>_<index>`. */
function stepOf(run, call) {
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

const failed = (event) =>
  Boolean(event.error) || !["success", "max_steps_error"].includes(event.state ?? "success");

const within = (time, low, high) => Math.min(Math.max(time, low), high);

const HANDLERS = {
  "run.accepted"(draft, run, event, at) {
    const task = event.task ?? {};
    const spec = event.spec ?? {};
    run.agent = task.agent || run.agent;
    run.task = task.task ?? "";
    run.args = task.additional_args ?? {};
    run.images = task.images ?? [];
    run.kind = spec.kind ?? "tool_calling";
    run.maxSteps = task.max_steps ?? spec.limits?.max_steps ?? null;
    run.deadline = event.deadline ?? null;
    run.forked = (event.prefix ?? []).length;
    run.startedAt = at;
  },
  "offer.changed"(draft, run, event) {
    run.missing = event.missing ?? [];
  },
  "model.called"(draft, run, event, at) {
    run.state = "running";
    run.step = event.step ?? run.step;
    run.doing = purposeText(event.purpose) + (event.attempt > 1 ? `, try ${event.attempt}` : "");
    // What was asked before and never answered was given up: a worker died, or a message came between.
    draft.change(run, run.step, (item) => item.type === "model" && item.state === "open", {
      state: "dropped", endedAt: at,
    });
    draft.push(run, run.step, {
      type: "model", purpose: event.purpose, attempt: event.attempt, state: "open", openedAt: at, startedAt: at,
      endedAt: null, text: "", pieces: 0, gap: false, model: event.model ?? "", reason: event.reason ?? "", calls: [],
      usage: null, error: null, items: [],
    }, at);
  },
  "model.answered"(draft, run, event, at) {
    const usage = event.usage ?? {};
    run.state = "running";
    run.doing = "";
    run.model = event.model || run.model;
    run.usage.input += usage.input_tokens ?? 0;
    run.usage.output += usage.output_tokens ?? 0;
    run.usage.cost += usage.cost ?? 0;
    run.usage.calls += 1;
    draft.change(run, event.step, (item) => item.type === "model" && item.state === "open", (item) => ({
      state: "ok", endedAt: at, startedAt: within(at - (event.seconds ?? 0), item.openedAt, at), text: event.content ?? "",
      gap: false, calls: event.calls ?? [], usage, model: event.model || item.model, finish: event.finish_reason,
      items: event.items ?? [], cached: event.cached_tokens ?? 0, reasoning: event.reasoning_tokens ?? 0,
    }));
  },
  "model.deferred"(draft, run, event, at) {
    run.state = "waiting";
    run.doing = `waiting for the model: ${event.reason ?? ""}`;
    draft.change(run, event.step, (item) => item.type === "model" && item.state === "open", {
      state: "deferred", endedAt: at, until: event.until, error: { type: "Deferred", message: event.reason ?? "" },
    });
  },
  "context.overflowed"(draft, run, event, at) {
    draft.change(run, event.step, (item) => item.type === "model" && item.state === "open", {
      state: "failed", endedAt: at, error: { type: "Context overflow", message: event.reason ?? "" },
    });
  },
  "approval.requested"(draft, run, event, at) {
    draft.open(run, event, at, { kind: event.kind, name: event.name, arguments: event.arguments ?? {} });
    draft.change(run, stepOf(run, event.call), isCall(event.call), {
      state: "held", askedAt: at, hold: { reason: event.reason ?? "", expires: event.expires ?? null, at },
    });
    draft.settle(run);
  },
  "approval.decided"(draft, run, event, at) {
    const decision = { verdict: event.verdict, by: event.sender ?? "", feedback: event.feedback ?? "", at };
    const refused = event.verdict === "rejected" || event.verdict === "expired";
    draft.change(run, stepOf(run, event.call), isCall(event.call), (item) => {
      const changes = { decision, hold: null, decidedAt: at };
      if (refused) return { ...changes, state: "failed", endedAt: at, error: { type: "Rejected", message: decisionText(decision) } };
      if (item.kind === "question") return { ...changes, state: "ok", endedAt: at, result: event.feedback || "yes" };
      return {
        ...changes, state: "open", name: event.name ?? item.name,
        before: event.arguments ? item.arguments : undefined, arguments: event.arguments ?? item.arguments,
      };
    });
    draft.settle(run);
  },
  "tool.called"(draft, run, event, at) {
    draft.open(run, event, at, { kind: "tool", name: event.tool, arguments: event.arguments ?? {} });
  },
  "delegate.started"(draft, run, event, at) {
    const args = { task: event.task ?? "", ...event.additional_args };
    draft.open(run, event, at, { kind: "member", name: event.member, arguments: args });
  },
  "tool.answered"(draft, run, event, at) {
    const seconds = event.seconds ?? 0;
    draft.change(run, stepOf(run, event.call), isCall(event.call), (item) => ({
      startedAt: within(event.started_at ?? at - seconds, item.openedAt, at),
    }));
    draft.close(run, event, at, {
      state: event.error ? "failed" : "ok", result: event.output, error: event.error ?? null, blob: event.blob ?? null,
      files: event.files ?? [], executor: event.executor ?? "", seconds,
    });
  },
  "delegate.finished"(draft, run, event, at) {
    draft.close(run, event, at, {
      state: failed(event) ? "failed" : "ok", result: event.output, error: event.error ?? null, usage: event.usage,
    });
  },
  "call.refused"(draft, run, event, at) {
    draft.open(run, event, at, { kind: "refused", name: event.name, arguments: event.arguments ?? {} });
    draft.close(run, event, at, { state: "failed", error: event.error });
  },
  "call.timed_out"(draft, run, event, at) {
    const error = { type: "Timeout", message: `no answer within ${event.seconds} s` };
    draft.close(run, event, at, { state: "failed", error });
  },
  "call.dropped"(draft, run, event, at) {
    draft.close(run, event, at, { state: "failed", error: { type: "Dropped", message: event.reason ?? "" } });
  },
  "code.started"(draft, run, event, at) {
    run.doing = "running code";
    draft.push(run, stepOf(run, event.block), {
      type: "code", id: event.block, code: event.code, state: "open", openedAt: at, startedAt: null, endedAt: null,
      logs: "", result: undefined, error: null,
    }, at);
  },
  "code.yielded"(draft, run, event, at) {
    draft.change(run, null, (item) => item.type === "code" && item.id === event.block, (item) => ({
      startedAt: item.startedAt ?? at, logs: item.logs + (event.logs ?? ""),
    }));
  },
  "code.finished"(draft, run, event, at) {
    run.doing = "";
    draft.change(run, null, (item) => item.type === "code" && item.id === event.block, (item) => ({
      state: event.error ? "failed" : "ok", endedAt: at, logs: item.logs + (event.logs ?? ""),
      startedAt: item.startedAt ?? within(at - (event.seconds ?? 0), item.openedAt, at),
      result: event.output ?? event.text, error: event.error ?? null, notes: event.notes ?? [], sandbox: event.sandbox,
    }));
  },
  "step.started"(draft, run, event, at) {
    run.step = event.step ?? run.step;
    run.state = "running";
    run.doing = event.name ?? "";
    draft.step(run, run.step, at).name = event.name ?? "";
  },
  "step.finished"(draft, run, event, at) {
    run.doing = "";
    const step = draft.step(run, event.step ?? run.step, at);
    step.endedAt = at;
    step.error = event.error ?? null;
  },
  "wait.begun"(draft, run, event, at) {
    run.state = "waiting";
    run.awaits = { signal: event.signal ?? null, until: event.until ?? null };
    run.doing = event.signal ? `waiting for the signal ${event.signal}` : "waiting for its time";
    draft.note(run, "wait.begun", event, at, run.doing);
  },
  "wait.ended"(draft, run, event, at) {
    run.state = "running";
    run.doing = "";
    run.awaits = null;
    draft.note(run, "wait.ended", event, at, event.signal ? `the signal ${event.signal} came` : "its time came");
  },
  "cancel.requested"(draft, run, event, at) {
    run.cancelling = true;
    run.doing = "being cancelled";
    draft.note(run, "cancel.requested", event, at, event.reason || "no reason given");
  },
  "record.ignored"(draft, run, event) {
    run.usage.input += event.usage?.input_tokens ?? 0;
    run.usage.output += event.usage?.output_tokens ?? 0;
    run.usage.cost += event.usage?.cost ?? 0;
  },
  "run.finished"(draft, run, event, at) {
    draft.end(run, { state: event.state ?? "error", output: event.output, error: event.error ?? null }, at);
    // The stream ends with its run: what is below was told to end too, and may tell so too late.
    for (const below of [...draft.tree.runs.values()]) {
      if (below.endedAt === null && below.id.startsWith(`${run.id}_`)) draft.end(draft.run({ run: below.id }), { state: "cancelled" }, at);
    }
  },
  "message.received": (draft, run, event, at) =>
    draft.note(run, "message.received", event, at, `${event.sender || "somebody"} says: ${event.text ?? ""}`),
  "signal.received": (draft, run, event, at) =>
    draft.note(run, "signal.received", event, at, `signal ${event.name}`),
  "history.summarized": (draft, run, event, at) =>
    draft.note(run, "history.summarized", event, at, `${event.covers} earlier steps summarized`),
  "answer.checked": (draft, run, event, at) =>
    draft.note(run, "answer.checked", event, at, event.problem ? `turned down by ${event.check}: ${event.problem}` : `passed ${event.check}`),
  "grace.begun": (draft, run, event, at) =>
    draft.note(run, "grace.begun", event, at, errorText(event.error)),
};

const isPending = (item) => item.state === "open" || item.state === "held";

function endPending(step, at) {
  step.items = step.items.map((item) => (isPending(item) ? { ...item, state: "dropped", hold: null, endedAt: at } : item));
  step.endedAt ??= at;
}

/** What a person, or the clock, made of a held call, in words. */
export function decisionText(decision) {
  if (!decision) return "";
  if (decision.verdict === "expired") return "nobody decided in time";
  return `${decision.verdict} by ${decision.by || "somebody"}${decision.feedback ? `: ${decision.feedback}` : ""}`;
}
