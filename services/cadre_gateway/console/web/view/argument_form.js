// Arguments of a call as a form over raw JSON: a field for each that a JSON Schema tells of, or all of them as text.

import { ExactNumber, isObject, parseWritten, same, writeJson } from "../exact_json.js";
import { field, fill, h } from "./element.js";

/** The form: `element`, `read()` with the arguments (raises Error with what is wrong), `changed()`; `raw` begins with JSON. */
export function argumentForm(args, schema, { raw: startsRaw = false } = {}) {
  const properties = schema?.properties ?? {};
  const required = new Set(schema?.required ?? []);
  const raw = h("textarea", { rows: 8, spellcheck: false, "aria-label": "Arguments as JSON", class: "code" });
  const fields = h("div", { class: "fields" });
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false" }, "Edit as JSON");
  const rawBox = h("div", { hidden: true }, raw);
  const element = h("div", { class: "arguments" }, fields, rawBox, toggle);
  let controls = new Map();
  let asRaw = false;
  draw(args);

  function draw(values) {
    const names = [...new Set([...Object.keys(properties), ...Object.keys(values)])];
    const of = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
    controls = new Map(names.map((name) => [name, control(name, of(values, name), of(properties, name) ?? {}, required.has(name))]));
    fill(fields, names.length === 0 && h("p", { class: "none" }, "no arguments"), names.map((name) => {
      const hint = [of(properties, name)?.description, !schema || required.has(name) ? "" : "optional"].filter(Boolean).join(" – ");
      return field(name, controls.get(name).element, hint);
    }));
  }

  function read() {
    if (asRaw) return parsed("the arguments", raw.value, true);
    return Object.fromEntries([...controls].map(([name, one]) => [name, one.read()]).filter(([, value]) => value !== undefined));
  }

  toggle.addEventListener("click", () => {
    try {
      const value = read();
      asRaw = !asRaw;
      if (asRaw) raw.value = writeJson(value, 2);
      else draw(value);
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
  return { element, read, changed: () => !same(read(), args) };
}

function parsed(what, text, object = false) {
  let value;
  try {
    value = parseWritten(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (object && !isObject(value)) throw new Error(`${what}: write an object, {…}`);
  return value;
}

function numberOf(name, text) {
  let value;
  try {
    value = parseWritten(text);
  } catch {
    value = null;
  }
  if (typeof value !== "number" && !(value instanceof ExactNumber)) throw new Error(`${name}: ${text.trim()} is not a number`);
  return value;
}

/** One argument. A value that was not touched is read as it was given, whatever a field of a page makes of it. */
function control(name, value, schema, required) {
  const { element, read } = fieldFor(name, value, schema, required || value !== undefined);
  const look = () => (element.type === "checkbox" ? element.checked : element.value);
  const shown = look();
  element.addEventListener("input", () => element.setCustomValidity(""));
  return { element, read: () => {
    if (value !== undefined && look() === shown) return value;
    try {
      return read();
    } catch (error) {
      element.setCustomValidity(error.message);
      element.reportValidity();
      throw error;
    }
  } };
}

/** As text where the schema says or it is one, a box, a choice, a number, else JSON. */
function fieldFor(name, value, schema, present) {
  const type = [schema.type ?? (value instanceof ExactNumber ? "number" : typeof value)].flat().find((one) => one !== "null");
  const isText = value === undefined || typeof value === "string";
  if (isText && Array.isArray(schema.enum) && schema.enum.every((one) => typeof one === "string")) {
    const choices = new Set([...(present && value !== undefined ? [value] : [""]), ...schema.enum]);
    const element = h("select", null, [...choices].map((one) => h("option", { value: one, selected: one === (value ?? "") }, one)));
    return { element, read: () => (element.value !== "" || present ? element.value : undefined) };
  }
  if (type === "boolean" && (value === undefined || typeof value === "boolean")) {
    const element = h("input", { type: "checkbox", checked: Boolean(value) });
    return { element, read: () => (present || element.checked ? element.checked : undefined) };
  }
  if (type === "string" && isText) {
    const long = (value ?? "").length > 60 || /[\r\n]/.test(value ?? "");
    const element = h(long ? "textarea" : "input", long ? { rows: 3 } : { type: "text" });
    element.value = value ?? "";
    return { element, read: () => (element.value !== "" || present ? element.value : undefined) };
  }
  const single = type === "number" || type === "integer";
  const element = h(single ? "input" : "textarea", { class: "code", ...(single ? { type: "text", inputMode: "decimal" } : { rows: 3, spellcheck: false }) });
  element.value = value === undefined ? "" : writeJson(value, single ? 0 : 2);
  return { element, read: () => (element.value.trim() === "" ? undefined : single ? numberOf(name, element.value) : parsed(name, element.value)) };
}
