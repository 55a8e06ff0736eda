// The tree of runs that the events of a stream tell of. Pure: no clock, no DOM. The same reducer shows a live run and
// one of last year. Times are Unix seconds.

import { decisionText, errorText, purposeText } from "./texts.js";
import { Draft, isCall, stepOf } from "./tree_draft.js";

/** The tree before the first event. */
export function emptyTree() {
  return { root: null, runs: new Map(), ended: null, last: 0, events: 0, faults: [] };
}

/**
 * The tree after more events of the stream, each `{name, data}`. Give each journal event once: tokens are summed.
 * Nothing of `tree` is changed: what did not change is shared. An event that cannot be taken in, or whose data could not
 * be read (`fault`), is among `faults` as `{name, run, seq, message}` and a note of its run; what follows is taken in.
 */
export function applyEvents(tree, events) {
  const draft = new Draft(tree);
  for (const { name, data, fault } of events) {
    try {
      if (fault) throw fault;
      apply(draft, name, data);
    } catch (error) {
      draft.fault(name, data, error);
    }
  }
  return draft.tree;
}

function apply(draft, name, data) {
  if (name === "end") {
    draft.tree.ended = data.state;
    return;
  }
  if (typeof data?.run !== "string") return;
  if (name === "delta") {
    draft.delta(data);
    return;
  }
  const run = draft.run(data);
  const at = Number(data.at) || 0;
  draft.tree.last = Math.max(draft.tree.last, at);
  draft.tree.events += 1;
  const event = data.event ?? {};
  const handler = HANDLERS[name];
  if (handler) handler(draft, run, event, at);
  else draft.note(run, name, event, at);
}

/** Whether the run has ended. */
export const isOver = (run) => run.endedAt !== null;

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

const failed = (event) =>
  Boolean(event.error) || !["success", "max_steps_error"].includes(event.state ?? "success");

const within = (time, low, high) => Math.min(Math.max(time, low), high);

const HANDLERS = {
  "run.accepted"(draft, run, event, at) {
    const task = event.task ?? {};
    const spec = event.spec ?? {};
    run.agent = task.agent || run.agent;
    run.task = task.task ?? "";
    run.inputs = task.inputs ?? {};
    run.images = task.images ?? [];
    run.revision = event.revision ?? "";
    run.tools = spec.tools ?? [];
    run.kind = spec.kind ?? "tool_calling";
    run.list = { plan: "plan", task_queue: "queue" }[event.decided_by] ?? null;
    run.workflow = (spec.sections ?? []).find((section) => section.kind === "workflow") ?? null;
    run.maxSteps = task.max_steps ?? spec.limits?.max_steps ?? null;
    run.deadline = event.deadline ?? null;
    run.forked = (event.prefix ?? []).length;
    run.startedAt = at;
  },
  "toolset.changed"(draft, run, event) {
    run.missing = event.missing ?? [];
    run.offers += 1;
  },
  "model.called"(draft, run, event, at) {
    const { purpose = "act", attempt = 1 } = event;
    run.state = "running";
    run.step = event.step ?? run.step;
    run.doing = purposeText(purpose) + (attempt > 1 ? `, try ${attempt}` : "");
    // What was asked before and never answered was given up: a worker died, or a message came between.
    draft.change(run, run.step, (item) => item.type === "model" && item.state === "open", {
      state: "dropped", endedAt: at,
    });
    draft.push(run, run.step, {
      type: "model", purpose, attempt, state: "open", openedAt: at, startedAt: at,
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
      state: "held", askedAt: at, hold: { reason: event.reason ?? "", expires: event.expires_at ?? null, at },
    });
    draft.settle(run);
  },
  "approval.decided"(draft, run, event, at) {
    const decision = { verdict: event.verdict, by: event.sender ?? "", feedback: event.feedback ?? "", edits: event.edits ?? [], at };
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
    const args = { task: event.task ?? "", ...event.inputs };
    draft.open(run, event, at, { kind: "member", name: event.member, arguments: args });
  },
  "tool.answered"(draft, run, event, at) {
    const seconds = event.seconds ?? 0;
    draft.change(run, stepOf(run, event.call), isCall(event.call), (item) => ({
      startedAt: within(event.started_at ?? at - seconds, item.openedAt, at),
    }));
    draft.close(run, event, at, {
      state: event.error ? "failed" : "ok", result: event.output ?? null, error: event.error ?? null, blob: event.blob ?? null,
      files: event.files ?? [], executor: event.executor ?? "", seconds,
    });
  },
  "delegate.finished"(draft, run, event, at) {
    draft.close(run, event, at, {
      state: failed(event) ? "failed" : "ok", result: event.output ?? null, error: event.error ?? null, usage: event.usage,
    });
  },
  "call.refused"(draft, run, event, at) {
    draft.open(run, event, at, { kind: "refused", name: event.name, arguments: event.arguments ?? {} });
    draft.close(run, event, at, { state: "failed", error: event.error });
  },
  "call.timed_out"(draft, run, event, at) {
    const error = event.code
      ? { type: "Away", message: `given up after ${event.seconds} s: nothing serves it` }
      : { type: "Timeout", message: `no answer within ${event.seconds} s` };
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
  "wait.started"(draft, run, event, at) {
    run.state = "waiting";
    run.awaits = { signal: event.signal ?? null, until: event.until ?? null };
    run.doing = event.signal ? `waiting for the signal ${event.signal}` : "waiting for its time";
    draft.note(run, "wait.started", event, at, run.doing);
  },
  "wait.finished"(draft, run, event, at) {
    run.state = "running";
    run.doing = "";
    run.awaits = null;
    draft.note(run, "wait.finished", event, at, event.signal ? `the signal ${event.signal} came` : "its time came");
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
  "grace.started": (draft, run, event, at) =>
    draft.note(run, "grace.started", event, at, errorText(event.error)),
};
