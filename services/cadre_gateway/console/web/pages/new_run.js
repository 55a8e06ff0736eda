// A task for the team: a form from what the agent takes, with files and bounds.

import { get, post } from "../http/api.js";
import { argumentForm } from "../view/argument_form.js";
import { alert, dialog, field, fill, h } from "../view/element.js";
import { bytes } from "../view/format.js";

/** Asks for a task in a dialog, starts its run and goes there. What is given is filled in, as from an earlier run's task. */
export async function startRun({ agent = "", task = "", inputs = {}, session = "", user = "", max_steps: steps = "", budget } = {}) {
  const { agents, problem } = await get("/v1/agents").catch((error) => ({ agents: [], problem: error.message }));
  // An agent that is in no team is likely the one that people ask.
  const members = new Set(agents.flatMap((one) => one.team));
  const chosen = agent || agents.find((one) => !members.has(one.name) && one.team.length)?.name || agents[0]?.name || "";
  const inputsBox = h("div", null);
  const files = filesField();
  let form;
  const drawInputs = (name) => {
    const schema = agents.find((one) => one.name === name)?.input_schema;
    form = argumentForm(inputs, schema ?? null, { raw: !schema });
    fill(inputsBox, schema ? h("h3", null, "Inputs") : h("p", { class: "hint" }, "Inputs: a JSON object, named values in addition to the task"), form.element);
    return schema;
  };
  const more = h("details", { open: Object.keys(inputs).length > 0 }, h("summary", null, "More"),
    field("Steps at most", h("input", { name: "max_steps", type: "number", min: 1, value: steps ?? "" })),
    field("Deadline", h("input", { name: "deadline", placeholder: "10m" }), "the run ends then with what it has found: 90s, 10m, 2h"),
    field("Tokens at most", h("input", { name: "tokens", type: "number", min: 1, value: budget?.tokens ?? "" })),
    field("Cost at most", h("input", { name: "cost", inputMode: "decimal", value: budget?.cost ?? "" }), "in the currency of the price table"),
    field("Session", h("input", { name: "session", value: session ?? "" })),
    field("User", h("input", { name: "user", value: user ?? "" })));
  const place = () => (drawInputs(select.value) ? more.before(inputsBox) : more.append(inputsBox));
  const select = h("select", { name: "agent", required: true, onchange: () => place() },
    agents.map((one) => h("option", { value: one.name, selected: one.name === chosen }, one.name)));
  const box = dialog("New run", [
    !agents.length && alert(problem ?? "No live agent: start one with `cadre up` or `cadre agent FILE`."),
    field("Agent", select),
    field("Task", h("textarea", { name: "task", rows: 5, required: true, value: task })),
    files.element, more,
  ], "Start", async (data) => {
    const body = { agent: data.get("agent"), task: data.get("task") };
    if (data.get("max_steps")) body.max_steps = Number(data.get("max_steps"));
    for (const name of ["session", "user", "deadline"]) if (data.get(name).trim()) body[name] = data.get(name).trim();
    const bound = { tokens: Number(data.get("tokens")) || undefined, cost: numberIn(box, "cost") };
    if (bound.tokens !== undefined || bound.cost !== undefined) body.budget = bound;
    const values = form.read();
    if (Object.keys(values).length) body.inputs = values;
    if (files.chosen.size) body.files = Object.fromEntries(await Promise.all([...files.chosen].map(async ([path, file]) => [path, await dataUrl(file)])));
    const started = await post("/v1/runs", body);
    location.hash = `#/run/${encodeURIComponent(started.id)}`;
  });
  place();
}

/** The number that a field of the form holds; undefined where it is empty. Says at the field what is wrong. */
function numberIn(box, name) {
  const element = box.querySelector(`input[name="${name}"]`);
  const text = element.value.trim();
  if (!text) return undefined;
  if (Number.isFinite(Number(text))) return Number(text);
  element.setCustomValidity(`${text} is not a number`);
  element.addEventListener("input", () => element.setCustomValidity(""), { once: true });
  element.reportValidity();
  throw new Error(`${name}: ${text} is not a number`);
}

/** Files for the workspace, chosen or dropped: `chosen` has each by its path. */
function filesField() {
  const chosen = new Map();
  const list = h("ul", { class: "list" });
  const add = (files) => {
    for (const file of files) chosen.set(file.name, file);
    draw();
  };
  const draw = () => fill(list, [...chosen].map(([path, file]) => h("li", null, `${path}, ${bytes(file.size)} `,
    h("button", { type: "button", class: "quiet", "aria-label": `Remove ${path}`, onclick: () => {
      chosen.delete(path);
      draw();
    } }, "remove"))));
  const input = h("input", { type: "file", multiple: true, onchange: () => {
    add(input.files);
    input.value = "";
  } });
  const element = h("div", { class: "drop",
    ondragover: (event) => {
      event.preventDefault();
      element.classList.add("over");
    },
    ondragleave: () => element.classList.remove("over"),
    ondrop: (event) => {
      event.preventDefault();
      element.classList.remove("over");
      add(event.dataTransfer.files);
    } }, field("Files", input, "or drop them here: they are in the run's workspace"), list);
  return { element, chosen };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.replace(/^data:;base64|^data:base64/, "data:application/octet-stream;base64"));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
}
