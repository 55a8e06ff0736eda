// Each argument of a call with where its value first stood; a place leads to the call whose result brought the value.

import { originsOf } from "../state/origins.js";
import { h } from "./element.js";

/** The list; null where no policy has asked. */
export function showOrigins(origins) {
  const found = originsOf(origins);
  if (!found.length) return null;
  return h("dl", { class: "facts origins" }, found.flatMap(({ argument, words, isKnown, place, href }) => [
    h("dt", null, argument),
    h("dd", { class: isKnown ? "known" : "strange" }, words, place && ": ", place && (href ? h("a", { href }, place) : h("code", null, place))),
  ]));
}
