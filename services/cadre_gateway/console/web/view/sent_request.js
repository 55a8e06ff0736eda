// What an agent sent to its model in one call: messages folded by role, what was on offer, options.

import { writeJson } from "../exact_json.js";
import { get, runPath, withQuery } from "../http/api.js";
import { alert, fill, h } from "./element.js";
import { brief, count } from "./format.js";
import { showImage, showValue } from "./value.js";

const APART = ["messages", "input", "tools"];
const OPEN_CHARACTERS = 600; // a last message up to this length is open at once

/** The request of a model call of a run, asked for when somebody wants to see it. */
export function sentRequest(run, { step, purpose, attempt }) {
  const box = h("div", null);
  const details = h("details", { class: "sent" }, h("summary", null, "The prompt as sent"), box);
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.loaded) return;
    details.dataset.loaded = "yes";
    fill(box, h("p", null, "Loading …"));
    try {
      fill(box, draw(await get(withQuery(`${runPath(run)}/steps/${step}/request`, { purpose, attempt }))));
    } catch (error) {
      delete details.dataset.loaded;
      fill(box, alert(error.message));
    }
  });
  return details;
}

function draw({ body }) {
  const messages = body.messages ?? body.input ?? [];
  const tools = (body.tools ?? []).map((tool) => tool.function ?? tool);
  const options = Object.fromEntries(Object.entries(body).filter(([name]) => !APART.includes(name)));
  return [
    h("ol", { class: "messages" }, messages.map((message, place) => h("li", null, drawMessage(message, place === messages.length - 1)))),
    tools.length > 0 && h("details", null, h("summary", null, `Tools on offer (${tools.length})`), tools.map(drawTool)),
    h("details", null, h("summary", null, "Options"), showValue(options)),
    h("details", null, h("summary", null, "As JSON"), h("pre", { class: "code" }, writeJson(body, 2))),
  ];
}

function drawMessage(message, last) {
  const { role, content, type, ...rest } = message;
  const parts = Array.isArray(content) ? content : [{ text: content ?? "" }];
  const text = parts.map((part) => part.text ?? "").join("\n");
  const more = Object.entries(rest).filter(([, value]) => value !== null && value !== "");
  const told = text || more.map(([, value]) => writeJson(value)).join(" ");
  return h("details", { open: last && text.length < OPEN_CHARACTERS },
    h("summary", null, h("span", { class: `role ${role ?? ""}` }, role ?? type), " ", h("span", { class: "remark" }, `${count(text.length)} characters – ${brief(told, 90)}`)),
    parts.map(drawPart), more.length > 0 && showValue(Object.fromEntries(more)));
}

function drawPart(part) {
  const image = part.image_url?.url ?? part.image_url;
  if (image) return showImage(image);
  if (part.text === undefined) return showValue(part);
  return part.text && h("pre", null, part.text);
}

const drawTool = (tool) => h("details", null, h("summary", null, h("code", null, tool.name ?? tool.type), " ", h("span", { class: "remark" }, brief(tool.description, 90))), showValue(tool));
