// The gateway's HTTP API.

import { parseJson, writeJson } from "../exact_json.js";

/** What the gateway refused: `code` is stable, the message says what to do. `status` 0: it was not reached. */
export class ApiError extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

const PATH = globalThis.document?.querySelector('meta[name="cadre-path"]')?.content ?? "";

/** The URL of a path of the gateway, which may be below a prefix. */
export const urlOf = (path) => PATH + path;

/** The event by which the page is told that the gateway wants to know who asks. */
export const UNAUTHORIZED = "cadre-unauthorized";

/** The answer to a request as data; null where it is empty. Raises ApiError. */
export async function request(method, path, body, signal, headers = {}) {
  const options = { method, signal, headers: { Accept: "application/json", ...headers } };
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
  const text = await answer.text();
  let data = null;
  try {
    data = text ? parseJson(text) : null;
  } catch {
    if (answer.ok) throw new ApiError(answer.status, "unreadable", "the answer is no JSON");
  }
  if (answer.status === 401) document.dispatchEvent(new Event(UNAUTHORIZED));
  if (!answer.ok) throw new ApiError(answer.status, data?.code ?? "error", data?.detail ?? `status ${answer.status}`);
  return data;
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body, signal) => request("POST", path, body ?? {}, signal);

/** `path` with the parameters that have a value. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== null && value !== "") query.set(name, value);
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
