// The gateway's HTTP API.

import { parseJson, writeJson } from "../exact_json.js";

/**
 * What the gateway refused: `code` is stable, the message says what to do, `field` names the key of the body that is
 * wrong, if one is. `status` 0: it was not reached.
 */
export class ApiError extends Error {
  constructor(status, code, detail, field = "") {
    super(detail);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

const PATH = globalThis.document?.querySelector('meta[name="cadre-path"]')?.content ?? "";

/** The URL of a path of the gateway, which may be below a prefix. */
export const urlOf = (path) => PATH + path;

/** The event by which the page is told that the gateway wants to know who asks. */
export const UNAUTHORIZED = "cadre-unauthorized";

/** The answer to a request as data; null where it is empty. `text` is sent as it is, in place of a body. Raises ApiError. */
export async function request(method, path, body, signal, headers = {}, text = undefined) {
  const options = { method, signal, headers: { Accept: "application/json", ...headers }, body: text };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = writeJson(body);
  }
  let answer;
  try {
    answer = await fetch(urlOf(path), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the gateway does not answer");
  }
  const written = await answer.text();
  let data = null;
  try {
    data = written ? parseJson(written) : null;
  } catch {
    if (answer.ok) throw new ApiError(answer.status, "unreadable", "the answer is no JSON");
  }
  if (answer.status === 401) document.dispatchEvent(new Event(UNAUTHORIZED));
  if (!answer.ok) throw new ApiError(answer.status, data?.code ?? "error", data?.detail ?? `status ${answer.status}`, data?.field);
  return data;
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body, signal) => request("POST", path, body ?? {}, signal);

let identity = null;

/** Who is signed in, with their `rights`; asked once, until the page is loaded again. Raises ApiError. */
export function session() {
  identity ??= get("/v1/session").catch((error) => {
    identity = null;
    throw error;
  });
  return identity;
}

/** Whether the signed-in person may do this: `act`, `decide` or `administer`; with `all`, where no scope bounds them. */
export async function may(right, { all = false } = {}) {
  const { rights, own, agents, teams } = await session();
  return rights.includes(right) && !(all && (own || agents.length || teams.length));
}

/** `path` with the parameters that have a value; a list is given once for each. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") query.append(name, one);
  }
  return query.size ? `${path}?${query}` : path;
}

export const runPath = (id) => `/v1/runs/${encodeURIComponent(id)}`;
export const callPath = (id) => `/v1/approvals/${encodeURIComponent(id)}`;

/** Where the bytes of `blob:<sha256>` are. */
export function blobPath(ref, name = "", type = "") {
  return withQuery(`/v1/blobs/${ref.replace(/^blob:/, "")}`, { name, type });
}

/** The events that made a row, whole. */
export async function eventsOf({ run, events }) {
  const numbers = [...new Set(events.map(([n]) => n))];
  const entries = new Map(await Promise.all(numbers.map(async (n) => [n, await get(`${runPath(run)}/entries/${n}`)])));
  return events.map(([n, place]) => entries.get(n).events[place - 1]);
}
