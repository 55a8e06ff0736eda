// Arguments of a call as a form over raw JSON: a field for each that a JSON Schema tells of, or all of them as text.

import { field, h } from "./element.js";

/** The form: `element`, `read()` with the arguments (raises Error with what is wrong), `changed()`; `raw` begins with JSON. */
export function argumentForm(args, schema, { raw: startsRaw = false } = {}) {
  const before = JSON.stringify(args);
  const properties = schema?.properties ?? {};
  const names = [...new Set([...Object.keys(properties), ...Object.keys(args)])];
  const required = new Set(schema?.required ?? []);
  const controls = new Map(names.map((name) => [name, control(name, args[name], properties[name] ?? {}, name in args || required.has(name))]));
  const raw = h("textarea", { rows: 8, spellcheck: false, "aria-label": "Arguments as JSON", class: "code" });
  const fields = h("div", { class: "fields" }, names.map((name) => {
    const hint = [properties[name]?.description, !schema || required.has(name) ? "" : "optional"].filter(Boolean).join(" – ");
    return field(name, controls.get(name).element, hint);
  }));
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false" }, "Edit as JSON");
  const rawBox = h("div", { hidden: true }, raw);
  const element = h("div", { class: "arguments" }, names.length ? fields : h("p", { class: "none" }, "no arguments"), rawBox, toggle);
  let asRaw = false;

  function read() {
    if (asRaw) return parsed("the arguments", raw.value, true);
    const found = {};
    for (const [name, one] of controls) {
      const value = one.read();
      if (value !== undefined) found[name] = value;
    }
    return found;
  }

  toggle.addEventListener("click", () => {
    try {
      const value = read();
      asRaw = !asRaw;
      if (asRaw) raw.value = JSON.stringify(value, null, 2);
      else for (const [name, one] of controls) one.write(value[name]);
      raw.setCustomValidity("");
    } catch (error) {
      raw.setCustomValidity(error.message);
      raw.reportValidity();
    }
    fields.hidden = asRaw;
    rawBox.hidden = !asRaw;
    toggle.setAttribute("aria-pressed", asRaw);
    toggle.textContent = asRaw ? "Edit as fields" : "Edit as JSON";
  });
  if (startsRaw) toggle.click();
  return { element, read, changed: () => JSON.stringify(read()) !== before };
}

function parsed(what, text, object = false) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (object && (value === null || typeof value !== "object" || Array.isArray(value))) throw new Error(`${what}: write an object, {…}`);
  return value;
}

/** One argument: as text where the schema says or it is one, a box, a choice, a number, else JSON. */
function control(name, value, schema, present) {
  const type = [schema.type ?? typeof value].flat().find((one) => one !== "null");
  const given = (text) => text !== "" || present;
  if (Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string")) {
    const element = h("select", null, !present && h("option", { value: "" }, ""), schema.enum.map((one) => h("option", { value: one }, one)));
    element.value = value ?? "";
    return { element, read: () => (given(element.value) ? element.value : undefined), write: (one) => { element.value = one ?? ""; } };
  }
  if (type === "boolean") {
    const element = h("input", { type: "checkbox", checked: Boolean(value) });
    return { element, read: () => (present || element.checked ? element.checked : undefined), write: (one) => { element.checked = Boolean(one); } };
  }
  if (type === "string" && (value === undefined || typeof value === "string")) {
    const long = (value ?? "").length > 60 || (value ?? "").includes("\n");
    const element = h(long ? "textarea" : "input", long ? { rows: 3 } : { type: "text" });
    element.value = value ?? "";
    return { element, read: () => (given(element.value) ? element.value : undefined), write: (one) => { element.value = one ?? ""; } };
  }
  const single = type === "number" || type === "integer";
  const element = h(single ? "input" : "textarea", { class: "code", ...(single ? { type: "text", inputMode: "decimal" } : { rows: 3, spellcheck: false }) });
  const write = (one) => { element.value = one === undefined ? "" : JSON.stringify(one, null, single ? 0 : 2); };
  write(value);
  return { element, write, read: () => (element.value.trim() === "" ? undefined : parsed(name, element.value)) };
}
