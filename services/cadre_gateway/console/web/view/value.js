// Any JSON value as elements: tables where it is tabular, files and images by their blobs, else text.

import { isContainer, isObject, parseWritten, writeJson } from "../exact_json.js";
import { blobPath, urlOf } from "../http/api.js";
import { bytes } from "./format.js";
import { h, table } from "./element.js";
import { markdown } from "./markdown.js";

const MAX_ROWS = 200;
const MAX_TEXT = 200_000;
const MAX_MARKDOWN = 50_000;
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** The value; `null` and absent ones as a dash. */
export function showValue(value, depth = 0) {
  if (value === undefined || value === null || value === "") return h("span", { class: "none" }, value === "" ? "(empty)" : "–");
  if (typeof value === "string") return showText(value, depth);
  if (!isContainer(value)) return h("code", null, String(value));
  if (value.$file) return showFile(value.$file);
  if (depth > 6) return h("pre", null, writeJson(value, 2));
  if (Array.isArray(value)) return showList(value, depth);
  const entries = Object.entries(value);
  if (!entries.length) return h("code", null, "{}");
  return h("dl", { class: "object" },
    entries.slice(0, MAX_ROWS).flatMap(([name, one]) => [h("dt", null, name), h("dd", null, showValue(one, depth + 1))]),
    entries.length > MAX_ROWS && [h("dt", null, "…"), h("dd", null, `${entries.length - MAX_ROWS} more`)]);
}

/** An answer: Markdown as it is meant, with a way to see it as it is written; any other value as `showValue` shows it. */
export function showAnswer(value) {
  const written = showValue(value);
  if (typeof value !== "string" || written.tagName !== "PRE" || value.length > MAX_MARKDOWN) return written;
  const meant = markdown(value);
  if (meant.textContent === value) return h("div", { class: "answer" }, meant);
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
    written.hidden = !written.hidden;
    meant.hidden = !written.hidden;
    toggle.setAttribute("aria-pressed", String(!written.hidden));
  } }, "As written");
  written.hidden = true;
  return h("div", { class: "answer" }, meant, written, toggle);
}

function showText(text, depth) {
  if (depth < 3 && /^\s*[[{]/.test(text) && text.length < MAX_TEXT) {
    try {
      const parsed = parseWritten(text);
      if (isContainer(parsed)) return showValue(parsed, depth + 1);
    } catch {
      // It only looks like JSON, or an object of it would hide one of two values under one key.
    }
  }
  if (depth > 0 && text.length < 80 && !text.includes("\n")) return h("span", { class: "text" }, text);
  const cut = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… ${text.length - MAX_TEXT} characters more` : text;
  return h("pre", null, cut);
}

function showList(list, depth) {
  if (!list.length) return h("code", null, "[]");
  const plain = (one) => isObject(one) && !one.$file;
  const names = list.every(plain) ? [...new Set(list.slice(0, MAX_ROWS).flatMap(Object.keys))] : [];
  const more = list.length > MAX_ROWS && h("p", null, `${list.length - MAX_ROWS} more`);
  if (names.length && names.length <= 12) {
    const rows = list.slice(0, MAX_ROWS).map((one) => names.map((name) => (Object.hasOwn(one, name) ? showValue(one[name], depth + 1) : "")));
    return h("div", null, table(names, rows), more);
  }
  return h("div", null, h("ol", { class: "list" }, list.slice(0, MAX_ROWS).map((one) => h("li", null, showValue(one, depth + 1)))), more);
}

/** A file that stands in an output: an image, or a link that downloads it. */
export function showFile(file) {
  const name = file.name || file.path || "file";
  const path = blobPath(file.ref ?? "", name, file.media_type ?? "");
  const link = h("a", { href: urlOf(path), download: name }, `${name}${file.size ? ` (${bytes(file.size)})` : ""}`);
  if (!IMAGES.includes(file.media_type)) return link;
  return h("figure", null, h("img", { src: urlOf(path), alt: name, loading: "lazy" }), h("figcaption", null, link));
}

/** An image of a task: `blob:` reference, `data:` URL, or a link elsewhere, which the page does not load. */
export function showImage(url) {
  if (url.startsWith("blob:")) return h("img", { src: urlOf(blobPath(url)), alt: "image of the task", loading: "lazy" });
  if (/^data:image\/(png|jpeg|gif|webp);base64,/.test(url)) return h("img", { src: url, alt: "image of the task" });
  return h("code", null, url);
}
