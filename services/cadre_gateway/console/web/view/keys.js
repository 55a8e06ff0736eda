// Single keys that act on a page, except while somebody types or a dialog is open.

import { h } from "./element.js";

const TYPING = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]";

/** Has each key of `actions` (as `KeyboardEvent.key`) do its work from now on; returns what ends it. */
export function onKeys(actions) {
  const press = (event) => {
    const act = actions[event.key];
    if (!act || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(TYPING) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", press);
  return () => document.removeEventListener("keydown", press);
}

/** The keys with their meaning, as pairs `[keys, words]`. */
export function keyLegend(pairs) {
  return h("p", { class: "hint keys" }, pairs.map(([keys, words]) => h("span", null, [keys].flat().map((key) => h("kbd", null, key)), " ", words)));
}
