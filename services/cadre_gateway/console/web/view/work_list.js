// What a run plans to do, its plan or its queue of tasks, with states and edited in place.

import { parseWritten, same, writeJson } from "../exact_json.js";
import { ApiError, get, request, runPath } from "../http/api.js";
import { alert, badge, button, dialog, field, fill, h, table, toast, withCode } from "./element.js";
import { argumentsText, brief } from "./format.js";

const MARKS = { done: "ok", running: "open", failed: "failed", pending: "dropped", waiting: "held" };

/** The plan (`name` is "plan") or queue ("queue") of a run, loaded at once; `editable`: whether the run goes on. */
export function workList(run, name, editable) {
  const title = name === "plan" ? "Plan" : "Queue";
  const list = h("div", null, "Loading …");
  const element = h("section", { class: "block worklist", "aria-label": title, hidden: true }, h("h3", null, title), list);
  const path = `${runPath(run)}/${name}`;
  load();
  return element;

  async function load() {
    try {
      draw(await get(path));
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) element.remove(); // not taken up yet, or a run without such a thing
      else {
        element.hidden = false;
        fill(list, alert(error.message), button("Try again", load, { class: "quiet" }));
      }
    }
  }

  function draw(known) {
    element.hidden = false;
    fill(list, name === "plan" ? planRows(known) : queueRows(known), h("p", { class: "hint" }, `version ${known.version}`));
  }

  /** One edit, based on the version that is shown. Of an edit that came too late what is there now is shown. */
  async function edit(known, operation) {
    try {
      const now = await request("PATCH", path, { version: known.version, operations: [operation] });
      if (now.state === undefined) toast("kept until its agent takes it up");
      else draw(now);
    } catch (error) {
      if (error.status !== 409) throw error;
      toast(`Not changed: ${error.message}. The list is as it is now.`, true); // it outlives this list, which the other edit replaces
      await load();
    }
  }

  function ask(known, words, fields, operation) {
    dialog(words, fields, "Save", (data) => edit(known, operation(data)));
  }

  function planRows(known) {
    const rows = known.state.steps.map((step) => [
      step.step, h("span", null, h("strong", null, step.action), " ", h("span", { class: "hint" }, brief(step.objective ?? argumentsText(step.args), 120))),
      step.needs.join(", "), badge(MARKS[step.state] ?? "dropped", step.state),
      editable && step.state === "pending" && h("span", { class: "actions" },
        h("button", { type: "button", class: "quiet", onclick: () => changeStep(known, step) }, "Change"),
        button("Drop", () => edit(known, { op: "drop", step: step.step }), { class: "quiet" })),
    ]);
    return [
      table(["Step", "Does", "Needs", "State", ""], rows),
      editable && h("button", { type: "button", onclick: () => changeStep(known, null) }, "Add a step"),
    ];
  }

  function changeStep(known, step) {
    const { step: number, state, ...rest } = step ?? { action: "", args: {} };
    ask(known, step ? `Step ${number}` : "One more step",
      [field("The step as JSON", h("textarea", { name: "step", rows: 10, class: "code", spellcheck: false, value: writeJson(rest, 2) }))],
      (data) => {
        const wanted = parseWritten(data.get("step"));
        if (!step) return { op: "add", step: wanted };
        const changed = Object.entries(wanted).filter(([key, value]) => !same(value, rest[key]));
        if (!changed.length) throw new Error("nothing is changed");
        return { op: "change", step: number, ...Object.fromEntries(changed) };
      });
  }

  function queueRows(known) {
    const { stage, begun, pending, done } = known.state;
    const rows = [
      ...done.map((one) => [withCode(one.task), one.failed ? badge("failed", "failed") : badge("ok", "done"), ""]),
      ...(begun ? [[withCode(begun), badge("open", "begun"), ""]] : []),
      ...pending.map((task, at) => [withCode(task), badge("dropped", "waiting"), editable && h("span", { class: "actions" },
        h("button", { type: "button", class: "quiet", onclick: () => taskDialog(known, "Reword the task", task, (text) => ({ op: "edit", task, text })) }, "Reword"),
        at > 0 && button("Earlier", () => edit(known, { op: "move", task, at: at - 1 }), { class: "quiet" }),
        button("Drop", () => edit(known, { op: "drop", task }), { class: "quiet" }))]),
    ];
    return [
      h("p", { class: "meta" }, stage), table(["Task", "State", ""], rows),
      editable && h("button", { type: "button", onclick: () => taskDialog(known, "One more task", "", (task) => ({ op: "add", task })) }, "Add a task"),
    ];
  }

  function taskDialog(known, words, text, operation) {
    ask(known, words, [field("Task", h("textarea", { name: "task", rows: 3, required: true, value: text }))], (data) => operation(data.get("task").trim()));
  }
}
