// Calls that an agent proposes as a whole: each is made as it is, changed, replaced or dropped, and others are added.

import { isObject } from "../exact_json.js";
import { argumentForm } from "./argument_form.js";
import { field, h } from "./element.js";

/** The form: `element` and `edits()`, the changes as the API takes them (raises Error with what is wrong). */
export function proposalForm(calls) {
  const proposed = calls.map((call, index) => proposedCall(call, index + 1));
  const added = [];
  const more = h("div", null);
  const add = h("button", { type: "button", class: "quiet", onclick: () => {
    const one = addedCall(() => {
      added.splice(added.indexOf(one), 1);
      one.element.dispatchEvent(new Event("input", { bubbles: true }));
      one.element.remove();
    });
    added.push(one);
    more.append(one.element);
    one.element.querySelector("input").focus();
  } }, "Add a call");
  return {
    element: h("div", { class: "proposal" }, proposed.map((one) => one.element), more, add),
    edits: () => [...proposed, ...added].map((one) => one.edit()).filter(Boolean),
  };
}

function proposedCall({ name, arguments: args }, number) {
  const made = h("input", { type: "checkbox", checked: true });
  const tool = h("input", { type: "text", value: name, required: true });
  const own = isObject(args) ? args : {};
  const form = argumentForm(own, null);
  const fields = h("div", null, field("Tool or team member", tool), form.element);
  made.addEventListener("change", () => { fields.hidden = !made.checked; });
  return {
    element: h("fieldset", null, h("legend", null, h("label", null, made, ` Call ${number}: ${name}`)), fields),
    edit() {
      if (!made.checked) return { call: number, drop: true };
      const wanted = tool.value.trim();
      if (!wanted) throw new Error(`call ${number}: name a tool, or leave the call out`);
      if (wanted !== name) return { call: number, tool: wanted, arguments: form.read() };
      if (!form.changed()) return null;
      const read = form.read();
      const gone = Object.keys(own).find((key) => !Object.hasOwn(read, key));
      // The API adds arguments to the call's own: what is left out would stay.
      if (gone !== undefined) throw new Error(`call ${number}: ${gone} cannot be taken away; write null or another value`);
      return { call: number, arguments: read };
    },
  };
}

function addedCall(remove) {
  const tool = h("input", { type: "text", required: true });
  const form = argumentForm({}, null, { raw: true });
  return {
    element: h("fieldset", null, h("legend", null, "One more call"), field("Tool or team member", tool), form.element,
      h("button", { type: "button", class: "quiet", onclick: remove }, "Leave it out")),
    edit() {
      if (!tool.value.trim()) throw new Error("the call that was added: name a tool");
      return { tool: tool.value.trim(), arguments: form.read() };
    },
  };
}
