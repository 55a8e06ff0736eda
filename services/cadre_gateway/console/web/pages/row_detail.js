// What is in one row of the tree: a run, a step, a model's answer, a call, a piece of work or a note. What the
// gateway has said of it is shown at once; the events that made it have the rest, and are asked for.

import { blobPath, eventsOf, get, runPath, urlOf, withQuery } from "../http/api.js";
import { isOver, minorNotes, numberOf, rowsBelow, spentOf, stateOf } from "../state/run_tree.js";
import { showChanges, showDecided } from "../view/changes.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, button, fill, h, withCode } from "../view/element.js";
import { faultText } from "../view/fault.js";
import { clock, cost, count, duration } from "../view/format.js";
import { showOrigins } from "../view/origins.js";
import { sentRequest } from "../view/sent_request.js";
import { showAnswer, showFile, showImage, showValue } from "../view/value.js";
import { workflowGraph } from "../view/workflow_graph.js";
import { workList } from "../view/work_list.js";

const RETRY_MS = 5000;
const LISTS = { plan: "plan", task_queue: "queue" }; // what people edit, by the kind that decides

/** The pane beside the tree. `fork(run, step)` asks for a fork, `changed` is called when something was decided. */
export class RowDetail {
  constructor({ fork, changed }) {
    Object.assign(this, { fork, changed });
    this.element = h("section", { class: "detail", "aria-label": "Details" });
    this.shown = null;
    this.live = null; // the text that grows
    this.whole = { key: null, cited: "", events: [], problem: null, at: 0 }; // what is known of the row that is shown
  }

  /** Shows the row; draws anew only what has changed, so that what a person types stays. */
  show({ row, call }, tree) {
    const held = row.state === "held" ? row : call?.state === "held" ? call : null;
    const same = this.shown?.key === row.key;
    if (!held) this.#load(row, () => this.show({ row: tree.rows.get(row.key), call: call && tree.rows.get(call.key) }, tree));
    const draft = tree.drafts.get(row.key);
    const content = [row, call, this.whole, row.kind === "run" && tree.worked.get(row.run), row.kind === "step" && rowsBelow(tree, row.key).map((one) => one.seq).join(), spentLine(tree, row.key)];
    if (same && held && this.shown.held === held.key) return;
    if (same && this.live && draft) this.live.textContent = liveText(draft);
    if (same && content.every((one, place) => one === this.shown.content[place])) return;
    const top = same ? this.element.scrollTop : 0;
    const opened = same ? [...this.element.querySelectorAll("details[open] > summary")].map((one) => one.textContent) : [];
    this.shown = { key: row.key, content, held: held?.key };
    this.live = null;
    fill(this.element, this.#drawn(row, call, held, tree));
    for (const one of this.element.querySelectorAll("details")) if (opened.includes(one.firstChild.textContent)) one.open = true;
    this.element.scrollTop = top;
  }

  close() {
    this.shown = null;
  }

  /** Asks for the events that made the row, and calls `again` once they are there. What was known is shown meanwhile. */
  async #load(row, again) {
    const cited = row.events.join(" ");
    const isRefused = this.whole.problem && Date.now() - this.whole.at > RETRY_MS;
    if (row.kind === "step" || row.kind === "events" || (this.whole.key === row.key && this.whole.cited === cited && !isRefused)) return;
    const known = this.whole.key === row.key ? this.whole.events : [];
    const mine = (this.whole = { key: row.key, cited, events: known, problem: null, at: Date.now() });
    const found = { ...mine };
    try {
      found.events = await eventsOf(row);
    } catch (error) {
      found.problem = error.message;
    }
    if (this.whole !== mine || this.shown?.key !== row.key) return;
    this.whole = found;
    again();
  }

  #drawn(row, call, held, tree) {
    const { key, events, problem } = this.whole;
    try {
      const drawn = { run: this.#run, step: this.#step, model: this.#model, call: this.#call, events: this.#events }[row.kind] ?? this.#told;
      return [drawn.call(this, row, { call, held, tree, events: key === row.key ? events : [] }), key === row.key && problem && alert(problem)];
    } catch (error) {
      reportError(error);
      return alert(faultText(error));
    }
  }

  #run(row, { call, held, tree, events }) {
    const { task = { task: row.brief }, spec = {}, revision, deadline, decided_by: kind } = events[0] ?? {};
    const workflow = spec.sections?.find((section) => section.kind === "workflow");
    const { step = 0, max_steps: most, model } = row.facts;
    const usage = row.usage ?? {};
    const output = events.findLast((event) => event.type === "run.finished")?.output ?? row.result;
    return [
      h("h2", null, row.name),
      facts([
        ["State", stateOf(row) + (row.words ? `: ${row.words}` : "")], ["Kind", spec.kind], ["Model", model],
        ["Revision", revision], ["Tools' schemas", this.#schemas(row, spec)],
        ["Step", most ? `${step} of at most ${most}` : step],
        ["Tokens", `${count(usage.input_tokens ?? 0)} in, ${count(usage.output_tokens ?? 0)} out${cost(usage.cost) ? `, cost ${cost(usage.cost)}` : ""}, without runs below`],
        ["With those", spentOf(tree, row.key).tokens > (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) && spentLine(tree, row.key)],
        ["Began", clock(row.began_at)], ["Waited", row.began_at - row.asked_at > 0.05 && `${duration(row.began_at - row.asked_at)} in the queue`],
        ["Ended", clock(row.ended_at)], ["Deadline", clock(deadline)], ["Run", h("a", { href: `#/run/${encodeURIComponent(row.run)}` }, row.run)],
      ]),
      held && decisionForm(held.key.slice("call:".length), { name: held.name }, this.changed).element,
      row.error && alert(row.error),
      row.lines.length > 0 && h("ul", { class: "list" }, row.lines.map((line) => h("li", null, withCode(line)))),
      isOver(row) && output && block("Answer", showAnswer(output)),
      workflow && block("Workflow", workflowGraph(workflow, row, rowsBelow(tree, row.key))),
      this.#work(row, LISTS[kind], tree.worked.get(row.run)),
      block("Task", showValue(task.task)),
      task.images?.length > 0 && block("Images", task.images.map(showImage)),
      Object.keys(task.inputs ?? {}).length > 0 && block("Inputs", showValue(task.inputs)),
      call?.remark && h("p", null, withCode(call.remark)),
    ];
  }

  /** The digest of what its tools say of themselves, asked for again at each step. */
  #schemas(row, spec) {
    if (!spec.tools?.length) return null;
    const key = `${row.run} ${row.facts.step}`;
    if (this.schemas?.key !== key) {
      const element = h("span", null, "…");
      this.schemas = { key, element };
      get(withQuery(runPath(row.run), { limit: 1 })).then(
        (told) => fill(element, told.schemas || "none is offered"),
        (error) => fill(element, error.message));
    }
    return this.schemas.element;
  }

  /** The plan or queue of a run that has one; the same element as long as nothing of it changes. */
  #work(row, list, worked) {
    if (!list || (isOver(row) && !worked)) return null;
    const key = `${row.run} ${worked} ${isOver(row)}`;
    if (this.work?.key !== key) this.work = { key, element: workList(row.run, list, !isOver(row)) };
    return this.work.element;
  }

  #step(row, { tree }) {
    return [
      h("h2", null, row.name),
      facts([["Agent", tree.runs.get(row.run)?.name], ["Name", row.words], ["Began", clock(row.began_at)], ["Took", row.ended_at && duration(row.ended_at - row.began_at)], ["Spent", spentLine(tree, row.key)]]),
      row.error && alert(row.error),
      numberOf(row) > 0 && h("div", { class: "actions" }, button("Fork from here", () => this.fork(row.run, row))),
      rowsBelow(tree, row.key).map((one) => h("p", { class: "line" }, h("strong", null, one.name), " ", one.kind === "note" ? withCode(one.text) : one.state)),
    ];
  }

  #model(row, { tree, events }) {
    const going = !isOver(row);
    const draft = tree.drafts.get(row.key);
    const { model, content, calls, items, usage, finish_reason: finish, cached_tokens: cached, reasoning_tokens: reasoning, until } = Object.assign({}, ...events);
    const text = h("pre", { class: going ? "live" : "" }, going ? liveText(draft) : content ?? row.brief);
    if (going) this.live = text;
    return [
      h("h2", null, `Model: ${row.name}`),
      facts([
        ["Model", model], ["State", row.state], ["Why", events[0]?.reason],
        ["Waited", !going && row.began_at - row.asked_at > 0.05 && `${duration(row.began_at - row.asked_at)} for a worker`],
        ["Took", !going && duration(row.ended_at - (row.began_at || row.asked_at))],
        ["Tokens", usage && `${count(usage.input_tokens)} in${cached ? ` (${count(cached)} cached)` : ""}, ${count(usage.output_tokens)} out${reasoning ? ` (${count(reasoning)} reasoning)` : ""}`],
        ["Cost", usage && cost(usage.cost)], ["Finished", finish], ["Asked again", until && clock(until)],
      ]),
      row.state === "failed" && alert(row.remark),
      (going || text.textContent) && block("Answer", going ? text : showAnswer(text.textContent)),
      calls?.length > 0 && block("Calls that it asks for", showValue(calls)),
      items?.length > 0 && block("Reasoning and more", showValue(items)),
      row.asked_for && sentRequest(row.run, row.asked_for),
    ];
  }

  #call(row, { held, tree, events }) {
    const last = (...types) => events.findLast(({ type }) => types.includes(type));
    const [asked, decided, ended] = [last("approval.requested"), last("approval.decided"), last("tool.answered", "delegate.finished")];
    const ruled = last("policy.decided");
    const sent = last("tool.called", "delegate.started", "call.refused");
    const input = sent?.member ? { task: sent.task, ...sent.inputs } : [sent, decided, asked].find((one) => one?.arguments)?.arguments;
    const kind = sent ? { "tool.called": "tool", "delegate.started": "team member", "call.refused": "cannot be made" }[sent.type] : row.is_question ? "question to a person" : asked?.kind;
    const id = row.key.slice("call:".length);
    return [
      h("h2", null, row.is_question ? "Question" : row.name),
      facts([
        ["Kind", kind], ["State", held ? "waits for a person" : row.state], ["Decision", decided && row.remark],
        ["Waited", isOver(row) && row.began_at - row.asked_at > 0.01 && `${duration(row.began_at - row.asked_at)} before it began`],
        ["Took", isOver(row) && duration(row.ended_at - row.began_at)], ["By", ended?.executor], ["Call", h("code", null, id)],
      ]),
      held && decisionForm(id, { name: row.name }, this.changed).element,
      ruled?.rules.length > 0 && h("p", { class: "hint" }, `Rules: ${ruled.rules.join(", ")}`),
      ruled?.watched?.length > 0 && h("p", { class: "hint" }, `Rules that watch: ${ruled.watched.join(", ")}`),
      row.state === "failed" && alert(row.error || row.result),
      row.error && !row.is_question && h("p", { class: "hint" }, "The model reads this error and may try otherwise; ",
        button("fork this step", () => this.fork(row.run, tree.rows.get(row.parent)), { class: "quiet" }), " to go on from here by yourself."),
      !held && block("Input", showValue(input ?? row.brief)),
      !held && ruled && Object.keys(ruled.origins).length > 0 && block("Where its values stood", showOrigins(ruled.origins)),
      asked && decided?.arguments && block("What a person changed", showChanges(asked.arguments, decided.arguments)),
      asked && decided?.edits?.length > 0 && block("What a person changed", showDecided(asked, decided)),
      row.state === "ok" && block("Output", showValue(ended ? ended.output : row.result)),
      ended?.blob && h("p", null, h("a", { href: urlOf(blobPath(ended.blob, `${row.name}.txt`)), download: "" }, "The whole output")),
      ended?.files?.length > 0 && block("Files", ended.files.map(showFile)),
    ];
  }

  #events(row, { tree }) {
    return [h("h2", null, row.name), minorNotes(tree, row.parent).map((note) => h("p", { class: "line" }, h("strong", null, note.name), " ", withCode(note.text)))];
  }

  /** A piece of work, or a note: the fields of its events, whatever kind of agent they are of. */
  #told(row, { events }) {
    return [
      h("h2", null, row.name),
      facts([
        ["State", row.kind === "work" && row.state], ["At", clock(row.asked_at)],
        ["Waited", isOver(row) && row.began_at - row.asked_at > 0.01 && `${duration(row.began_at - row.asked_at)} before it began`],
        ["Took", isOver(row) && row.kind === "work" && duration(row.ended_at - row.began_at)],
      ]),
      row.error && alert(row.error),
      row.lines.map((line) => h("p", null, withCode(line))),
      events.map(({ type, ...fields }) => block(type, showValue(Object.fromEntries(Object.entries(fields).filter(([, value]) => isSaid(value)))))),
    ];
  }
}

/** Return the tokens and cost of a row and all below it. */
function spentLine(tree, key) {
  const spent = spentOf(tree, key);
  return spent.tokens > 0 && `${count(spent.tokens)} tokens${cost(spent.cost) && `, cost ${cost(spent.cost)}`}`;
}

const isSaid = (value) => value !== null && value !== "" && !(Array.isArray(value) && !value.length);

const liveText = (draft) => (draft?.gap ? `… ${draft.text}` : draft?.text ?? "");

const block = (title, ...content) => h("section", { class: "block" }, h("h3", null, title), ...content);

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}
