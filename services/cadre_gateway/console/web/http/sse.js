// Server-Sent Events out of text that comes in pieces. Pure.

import { parseJson } from "../exact_json.js";

/** Takes pieces of text by `push`, which returns the whole events among them: `{name, id, data}`. */
export class SseParser {
  #rest = "";

  push(piece) {
    const blocks = (this.#rest + piece.replaceAll("\r\n", "\n")).split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(parseBlock).filter((event) => event !== null);
  }
}

function parseBlock(block) {
  const event = { name: "message", id: null, data: "" };
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) continue;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") data.push(value);
  }
  if (!data.length) return null;
  event.data = data.join("\n");
  return event;
}

/** An event whose data is no JSON has a `fault` in its place; those behind it are read all the same. */
function read({ name, data }) {
  try {
    return { name, data: parseJson(data) };
  } catch (fault) {
    return { name, data: null, fault };
  }
}

/**
 * Holds the events of a journal entry back until its last one has come, which bears the id: a stream that was cut off
 * within an entry tells that entry again as a whole.
 */
export class WholeEntries {
  #waiting = [];
  last = null; // id behind which to go on

  push(event) {
    const told = read(event);
    if (event.name === "delta" || event.name === "end") return [told];
    this.#waiting.push(told);
    if (event.id === null) return [];
    this.last = event.id;
    return this.#waiting.splice(0);
  }

  /** Forgets what is not whole: the connection was lost. */
  cut() {
    this.#waiting = [];
  }
}
