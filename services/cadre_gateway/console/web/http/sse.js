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

/** Reads the data of an event. In place of data that is no JSON it has a `fault`: those behind it are read all the same. */
export function readEvent({ name, data }) {
  try {
    return { name, data: parseJson(data) };
  } catch (fault) {
    return { name, data: null, fault };
  }
}
