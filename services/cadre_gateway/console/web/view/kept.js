// What the browser keeps for the next visit: a person's choices, never anything secret.

import { parseJson, writeJson } from "../exact_json.js";
import { urlOf } from "../http/api.js";

/** Deployments below different paths of one host keep their own. */
const keyOf = (name) => `cadre${urlOf("/")}${name}`;

/** What was kept under this name; `otherwise` where there is nothing, or nothing of this console. */
export function kept(name, otherwise) {
  try {
    const written = localStorage.getItem(keyOf(name));
    return written === null ? otherwise : parseJson(written);
  } catch (error) {
    // A browser may forbid to keep anything, and others may have written there: the page works without.
    console.info(`nothing is kept of ${name}: ${error.message}`);
    return otherwise;
  }
}

/** Keeps a value. Raises Error where the browser keeps nothing. */
export function keep(name, value) {
  try {
    localStorage.setItem(keyOf(name), writeJson(value));
  } catch (error) {
    throw new Error(`the browser keeps nothing for this page: ${error.message}`, { cause: error });
  }
}
