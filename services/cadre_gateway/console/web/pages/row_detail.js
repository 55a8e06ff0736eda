// What is in one row of the tree: a run, a step, a model's answer, a call, code or something told.

import { blobPath, get, runPath, withQuery } from "../http/api.js";
import { isOver } from "../state/run_tree.js";
import { decisionText, errorText, purposeText } from "../state/texts.js";
import { showChanges, showDecided } from "../view/changes.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, fill, h } from "../view/element.js";
import { faultText } from "../view/fault.js";
import { clock, cost, count, duration } from "../view/format.js";
import { sentRequest } from "../view/sent_request.js";
import { showFile, showImage, showValue } from "../view/value.js";
import { workflowGraph } from "../view/workflow_graph.js";
import { workList } from "../view/work_list.js";

/** The pane beside the tree. `fork(run, step)` asks for a fork, `changed` is called when something was decided. */
export class RowDetail {
  constructor({ fork, changed }) {
    Object.assign(this, { fork, changed });
    this.element = h("section", { class: "detail", "aria-label": "Details" });
    this.shown = null;
    this.live = null; // the text that grows
  }

  /** Shows the row; draws anew only what has changed, so that what a person types stays. */
  show(row, tree) {
    const content = row.item ?? row.step ?? row.run;
    const form = row.item?.state === "held" || row.call?.state === "held";
    const same = this.shown?.key === row.key;
    if (same && (this.shown.content === content || (form && this.shown.form))) return;
    if (same && this.live && row.item?.state === "open") {
      this.live.textContent = liveText(row.item);
      this.shown.content = content;
      return;
    }
    const top = same ? this.element.scrollTop : 0;
    const opened = same ? [...this.element.querySelectorAll("details[open] > summary")].map((one) => one.textContent) : [];
    this.shown = { key: row.key, content, form };
    this.live = null;
    fill(this.element, this.#drawn(row, tree));
    for (const one of this.element.querySelectorAll("details")) if (opened.includes(one.firstChild.textContent)) one.open = true;
    this.element.scrollTop = top;
  }

  close() {
    this.shown = null;
  }

  #drawn(row, tree) {
    try {
      return this.#draw(row, tree);
    } catch (error) {
      reportError(error);
      return alert(faultText(error));
    }
  }

  #draw({ type, run, step, item, call }) {
    if (type === "run") return this.#run(run, call);
    if (type === "step") return this.#step(run, step);
    return { model: () => this.#model(run, step, item), call: () => this.#call(run, step, item), code: () => this.#code(item) }[item.type]?.() ?? this.#note(item);
  }

  #run(run, call) {
    return [
      h("h2", null, run.agent),
      facts([
        ["State", run.state + (run.doing ? `: ${run.doing}` : "")], ["Kind", run.kind], ["Model", run.model],
        ["Revision", run.revision], ["Tools' schemas", this.#schemas(run)],
        ["Step", run.maxSteps ? `${run.step} of at most ${run.maxSteps}` : run.step],
        ["Tokens", `${count(run.usage.input)} in, ${count(run.usage.output)} out${cost(run.usage.cost) ? `, cost ${cost(run.usage.cost)}` : ""}, without runs below`],
        ["Began", clock(run.startedAt)], ["Waited", call && run.startedAt > call.openedAt ? `${duration(run.startedAt - call.openedAt)} in the queue` : ""],
        ["Ended", clock(run.endedAt)], ["Deadline", clock(run.deadline)], ["Run", h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.id)],
      ]),
      run.error && alert(errorText(run.error)),
      run.output !== undefined && run.output !== null && block("Answer", showValue(run.output)),
      run.workflow && block("Workflow", workflowGraph(run)),
      this.#work(run),
      block("Task", showValue(run.task)),
      run.images.length > 0 && block("Images", run.images.map(showImage)),
      Object.keys(run.inputs).length > 0 && block("Inputs", showValue(run.inputs)),
      call?.decision && h("p", null, decisionText(call.decision)),
    ];
  }

  /** The digest of what its tools say of themselves, asked for anew when it is offered others. */
  #schemas(run) {
    if (!run.offers || !run.tools.length) return null;
    const key = `${run.id} ${run.offers}`;
    if (this.schemas?.key !== key) {
      const element = h("span", null, "…");
      this.schemas = { key, element };
      get(withQuery(runPath(run.id), { limit: 1 })).then(
        (told) => fill(element, told.schemas || "none is offered"),
        (error) => fill(element, error.message));
    }
    return this.schemas.element;
  }

  /** The plan or queue of a run that has one; the same element as long as nothing of it changes. */
  #work(run) {
    if (!run.list || (isOver(run) && !run.planned)) return null;
    const key = `${run.id} ${run.planned} ${isOver(run)}`;
    if (this.work?.key !== key) this.work = { key, element: workList(run.id, run.list, !isOver(run)) };
    return this.work.element;
  }

  #step(run, step) {
    return [
      h("h2", null, step.number ? `Step ${step.number}` : "Before the first step"),
      facts([["Agent", run.agent], ["Name", step.name], ["Began", clock(step.startedAt)], ["Took", step.endedAt && duration(step.endedAt - step.startedAt)]]),
      step.error && alert(errorText(step.error)),
      step.number > 0 && h("div", { class: "actions" }, h("button", { type: "button", onclick: () => this.fork(run, step.number) }, "Fork from here")),
      step.items.map((item) => h("p", { class: "line" }, h("strong", null, item.name ?? (item.type === "model" ? purposeText(item.purpose) : item.type)), " ", item.state ?? "")),
    ];
  }

  #model(run, step, item) {
    const going = item.state === "open";
    const text = h("pre", { class: going ? "live" : "" }, liveText(item));
    if (going) this.live = text;
    return [
      h("h2", null, `Model: ${purposeText(item.purpose)}`),
      facts([
        ["Model", item.model], ["State", item.state], ["Try", item.attempt > 1 && item.attempt], ["Why", item.reason],
        ["Waited", item.startedAt - item.openedAt > 0.05 && `${duration(item.startedAt - item.openedAt)} for a worker`],
        ["Took", item.endedAt && duration(item.endedAt - item.startedAt)],
        ["Tokens", item.usage && `${count(item.usage.input_tokens)} in${item.cached ? ` (${count(item.cached)} cached)` : ""}, ${count(item.usage.output_tokens)} out${item.reasoning ? ` (${count(item.reasoning)} reasoning)` : ""}`],
        ["Cost", item.usage && cost(item.usage.cost)], ["Finished", item.finish], ["Asked again", item.until && clock(item.until)],
      ]),
      item.error && alert(errorText(item.error)),
      (item.text || going) && block("Answer", text),
      item.calls?.length > 0 && block("Calls that it asks for", showValue(item.calls)),
      item.items?.length > 0 && block("Reasoning and more", showValue(item.items)),
      sentRequest(run.id, step.number, item),
    ];
  }

  #call(run, step, item) {
    const held = item.state === "held";
    return [
      h("h2", null, item.kind === "question" ? "Question" : item.name),
      facts([
        ["Kind", { tool: "tool", member: "team member", question: "question to a person", refused: "cannot be made" }[item.kind]],
        ["State", held ? "waits for a person" : item.state], ["Decision", decisionText(item.decision)],
        ["Waited", item.startedAt && item.startedAt - item.openedAt > 0.01 && `${duration(item.startedAt - item.openedAt)} in the queue`],
        ["Took", item.endedAt && duration(item.endedAt - (item.startedAt ?? item.openedAt))], ["By", item.executor],
        ["Call", h("code", null, item.id)],
      ]),
      held && decisionForm(item.id, { name: item.name, ...item.hold }, this.changed).element,
      item.error && alert(errorText(item.error)),
      item.error && item.kind !== "question" && h("p", { class: "hint" }, "The model reads this error and may try otherwise; ",
        h("button", { type: "button", class: "quiet", onclick: () => this.fork(run, step.number) }, "fork this step"), " to go on from here by yourself."),
      !held && block("Input", showValue(item.arguments)),
      item.before && block("What a person changed", showChanges(item.before, item.arguments)),
      item.decision?.edits.length > 0 && block("What a person changed", showDecided(item, item.decision)),
      item.result !== undefined && !item.error && block("Output", showValue(item.result)),
      item.blob && h("p", null, h("a", { href: blobPath(item.blob, `${item.name}.txt`), download: "" }, "The whole output")),
      item.files?.length > 0 && block("Files", item.files.map(showFile)),
    ];
  }

  #code(item) {
    return [
      h("h2", null, "Code"),
      facts([["State", item.state], ["Waited", item.startedAt && item.startedAt - item.openedAt > 0.01 && `${duration(item.startedAt - item.openedAt)} for a sandbox`],
        ["Took", item.endedAt && duration(item.endedAt - (item.startedAt ?? item.openedAt))], ["Sandbox", item.sandbox]]),
      item.error && alert(errorText(item.error)),
      block("Code", h("pre", { class: "code" }, item.code)),
      item.logs && block("Printed", h("pre", null, item.logs)),
      item.result !== undefined && item.result !== null && block("Output", showValue(item.result)),
      item.notes?.length > 0 && block("Notes", showValue(item.notes)),
    ];
  }

  #note(item) {
    const { type, ...rest } = item.event;
    return [h("h2", null, type ?? item.name), facts([["At", clock(item.at)]]), item.text && h("p", null, item.text), showValue(rest)];
  }
}

const liveText = (item) => (item.gap ? `… ${item.text}` : item.text);

const block = (title, ...content) => h("section", { class: "block" }, h("h3", null, title), ...content);

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}
