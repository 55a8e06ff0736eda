// The form of a schedule, trigger, notice or budget, which says at each field what is wrong with it.

import { ApiError, get, request } from "../http/api.js";
import { FieldError, KINDS, readSpec, shownOf } from "../state/definitions.js";
import { dialog, h } from "./element.js";

/** Asks for a definition of this kind and makes it, or changes that of the `name` and `spec`. Resolves once it is written. */
export async function editDefinition(kind, { name = "", spec = null } = {}) {
  const { words, plural, fields } = KINDS[kind];
  const agents = await get("/v1/agents").then((found) => found.agents.map((one) => one.name), () => []);
  const before = spec ?? initial(fields);
  const controls = new Map(fields.map((field) => [field.key, control(field, shownOf(field, before), agents)]));
  controls.set("name", control({ key: "name", label: "Name", required: true }, name, [], Boolean(name)));
  const rows = (wanted) => fields.filter(wanted).map(({ key }) => controls.get(key).element);
  const paused = kind === "schedule" && !spec ? box("paused", "Paused", "It starts nothing until somebody resumes it") : null;
  const details = h("details", { open: fields.some((field) => field.more && controls.get(field.key).isSet()) }, h("summary", null, "More"), rows((one) => one.more), paused);
  return new Promise((resolve) => {
    const shown = dialog(name ? `${words} ${name}` : `New ${words.toLowerCase()}`, [controls.get("name").element, rows((one) => !one.more), details.children.length > 1 && details], name ? "Save" : "Make", async (data) => {
      for (const one of controls.values()) one.tell("");
      try {
        const called = controls.get("name").read().trim();
        if (!called) throw new FieldError("name", "Name is missing");
        const written = readSpec(kind, (key) => controls.get(key).read(), spec ?? {});
        if (data.get("paused")) written.paused = true;
        if (!name) await refuseKnown(plural, words, called);
        await request("PUT", `/v1/${plural}/${encodeURIComponent(called)}`, written);
      } catch (error) {
        const at = (error.field ?? "").split(", ")[0];
        const one = controls.get(at) ?? controls.get(fields.find(({ key }) => key.startsWith(`${at}.`) || at.startsWith(`${key}.`))?.key);
        if (!one) throw error;
        one.tell(error instanceof ApiError ? error.message.slice(error.field.length + 2) : error.message); // `FIELD: ` begins it
        if (details.contains(one.element)) details.open = true;
        one.focus();
        throw new Error(`Not saved: see ${one.label}`, { cause: error });
      }
      resolve();
    });
    shown.addEventListener("close", resolve);
    shown.querySelector("form").noValidate = true; // what is missing is said at its field, in our words
  });
}

/** What a new one begins with. */
function initial(fields) {
  const found = Object.fromEntries(fields.filter((one) => one.initial).map((one) => [one.key, one.initial]));
  if (fields.some(({ key }) => key === "cron")) found.time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return found;
}

/** A PUT would replace what another person has made. */
async function refuseKnown(plural, words, name) {
  const { [plural]: all } = await get(`/v1/${plural}`);
  if (all.some((one) => one.name === name)) throw new FieldError("name", `There is a ${words.toLowerCase()} ${name}: change that one, or choose another name`);
}

const box = (name, words, hint) => h("div", { class: "field" }, h("label", { class: "check" }, h("input", { type: "checkbox", name }), words), h("small", null, hint));

/** One field: `read()` is its text or its list, `tell(words)` says what is wrong with it. */
function control({ key, type = "text", label, hint, options, required, fallback }, shown, agents, fixed = false) {
  const id = `definition-${key.replace(".", "-")}`;
  const problem = h("small", { class: "wrong", id: `${id}-problem`, hidden: true });
  const common = { id, name: key, required: Boolean(required) };
  let input;
  let read = () => input.value;
  if (type === "several") {
    const boxes = options.map((one) => h("input", { type: "checkbox", value: one, checked: shown.includes(one) }));
    input = h("fieldset", { id }, h("legend", null, label), boxes.map((one) => h("label", { class: "check" }, one, one.value)));
    read = () => boxes.filter((one) => one.checked).map((one) => one.value);
  } else if (type === "choice" || type === "agent") {
    const known = [...new Set([...(required && type === "choice" ? [] : [type === "choice" ? fallback ?? "" : ""]), ...(options ?? agents), ...(shown ? [shown] : [])])];
    input = h("select", common, known.map((one) => h("option", { value: one, selected: one === shown }, one)));
    // A choice that stands for its default was never written.
    read = () => (input.value === fallback && !shown ? "" : input.value);
  } else if (type === "area" || type === "json") {
    input = h("textarea", { ...common, rows: type === "json" ? 5 : 3, class: type === "json" ? "code" : "", spellcheck: type !== "json" });
    input.value = shown;
  } else {
    const isTime = type === "time" && /^(\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?)?$/.test(shown);
    input = h("input", { ...common, type: isTime ? "datetime-local" : "text", readOnly: fixed, inputMode: type === "number" ? "decimal" : "text", autocomplete: "off" });
    input.value = shown;
    const first = input.value; // as the browser writes a time
    read = () => (input.value === first ? shown : input.value);
  }
  const element = h("div", { class: "field" }, type === "several" ? input : [h("label", { htmlFor: id }, label), input], problem, hint && h("small", null, hint));
  const tell = (words) => {
    problem.textContent = words;
    problem.hidden = !words;
    if (words) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", problem.id);
    } else {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
  };
  element.addEventListener("input", () => tell(""));
  return { element, label, read, tell, isSet: () => shown.length > 0, focus: () => input.focus() };
}
