// Follows the rows of a run to its end, across lost connections and restarts of the gateway.

import { parseJson } from "../exact_json.js";
import { ApiError, UNAUTHORIZED, urlOf, withQuery } from "./api.js";
import { readEvent, SseParser } from "./sse.js";

const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 30_000;
const STEADY_MS = 10_000; // a connection that lasted as long, or brought something, was a good one
const SILENT_MS = 45_000; // the gateway sends a comment every 15 s
const HIDDEN_MS = 20_000; // browsers keep 6 connections to one address: tabs that nobody looks at give theirs back
const PASSING = [401, 408, 425, 429]; // refusals that end: after a sign-in, or later

/**
 * Calls `onEvents` with lists of `{name, data}`: `rows` and `delta`, each once, and `onLink` with "live" and the headers of the answer,
 * "lost" and `{reason, seconds}` until the next try, "resting" or "ended". Returns what ends it. A refusal (404: erased,
 * never there) goes to `onRefused`, and ends it too. What these functions raise is reported, and ends nothing.
 */
export function followRun(path, { onEvents, onLink, onRefused }) {
  let last = null; // id of the event behind which to go on
  let over = false;
  let pause = FIRST_PAUSE_MS;
  let connection = null;
  let timer = null;
  let hiding = null;

  async function connect() {
    connection = new AbortController();
    const mine = connection;
    const begun = Date.now();
    let reason = "";
    let silence = setTimeout(() => mine.abort(), SILENT_MS);
    try {
      const answer = await fetch(urlOf(withQuery(`${path}/events`, { view: "rows", after: last })), { signal: mine.signal, headers: { Accept: "text/event-stream" } });
      if (!answer.ok) {
        reason = await refused(answer);
        return;
      }
      safely(onLink, "live", answer.headers);
      const parser = new SseParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) {
          reason = "the gateway ended it";
          return;
        }
        clearTimeout(silence);
        silence = setTimeout(() => mine.abort(), SILENT_MS);
        const told = parser.push(value);
        last = told.findLast(({ id }) => id !== null)?.id ?? last;
        const events = told.map(readEvent);
        if (events.some((event) => event.name === "end")) over = true;
        if (events.length) {
          pause = FIRST_PAUSE_MS;
          safely(onEvents, events);
        }
        if (over) {
          safely(onLink, "ended");
          mine.abort();
          return;
        }
      }
    } catch (error) {
      reason = error.name === "AbortError" ? "the gateway was silent" : "the gateway does not answer";
    } finally {
      clearTimeout(silence);
      if (Date.now() - begun > STEADY_MS) pause = FIRST_PAUSE_MS;
      if (connection === mine) {
        connection = null;
        if (!over && !document.hidden) again(reason);
        else if (!over) safely(onLink, "resting");
      }
    }
  }

  /** Returns why the stream is not there; a refusal that stays ends it. */
  async function refused(answer) {
    const problem = await answer.text().then(parseJson).catch(() => null);
    const error = new ApiError(answer.status, problem?.code ?? "error", problem?.detail ?? `status ${answer.status}`);
    if (answer.status === 401) document.dispatchEvent(new Event(UNAUTHORIZED));
    if (answer.status < 500 && !PASSING.includes(answer.status)) {
      over = true;
      safely(onRefused, error);
    }
    return error.message;
  }

  function again(reason) {
    safely(onLink, "lost", { reason, seconds: pause / 1000 });
    timer = setTimeout(connect, pause);
    pause = Math.min(pause * 2, MAX_PAUSE_MS);
  }

  function seen() {
    clearTimeout(hiding);
    if (over) return;
    if (document.hidden) hiding = setTimeout(() => connection?.abort(), HIDDEN_MS);
    else if (connection === null) {
      clearTimeout(timer);
      connect();
    }
  }

  document.addEventListener("visibilitychange", seen);
  connect();
  return () => {
    over = true;
    document.removeEventListener("visibilitychange", seen);
    clearTimeout(timer);
    clearTimeout(hiding);
    connection?.abort();
  };
}

/** A page that fails is no lost connection: it receives further events as before. */
function safely(work, ...told) {
  try {
    work(...told);
  } catch (error) {
    reportError(error);
  }
}
