// Follows the events of a run to its end, across lost connections and restarts of the gateway.

import { ApiError } from "./api.js";
import { SseParser, WholeEntries } from "./sse.js";

const MAX_PAUSE_MS = 10_000;
const SILENT_MS = 45_000; // the gateway sends a comment every 15 s
const HIDDEN_MS = 20_000; // browsers keep 6 connections to one address: tabs that nobody looks at give theirs back

/**
 * Calls `onEvents` with lists of `{name, data}`, each event once, and `onLink` with "live" and the headers of
 * the answer, "lost", "resting" or "ended". Returns what ends it. A refusal (404: erased, never there) goes to
 * `onRefused`, and ends it too.
 */
export function followRun(path, { onEvents, onLink, onRefused }) {
  const entries = new WholeEntries();
  let over = false;
  let pause = 500;
  let connection = null;
  let timer = null;
  let hiding = null;

  async function connect() {
    connection = new AbortController();
    const mine = connection;
    let silence = setTimeout(() => mine.abort(), SILENT_MS);
    try {
      const after = entries.last === null ? "" : `?after=${entries.last}`;
      const answer = await fetch(`${path}/events${after}`, { signal: mine.signal, headers: { Accept: "text/event-stream" } });
      if (!answer.ok) {
        const problem = await answer.json().catch(() => ({}));
        if ([404, 410, 422].includes(answer.status)) {
          over = true;
          onRefused(new ApiError(answer.status, problem.code ?? "error", problem.detail ?? `status ${answer.status}`));
        }
        return;
      }
      onLink("live", answer.headers);
      pause = 500;
      const parser = new SseParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => mine.abort(), SILENT_MS);
        const events = parser.push(value).flatMap((event) => entries.push(event));
        if (events.some((event) => event.name === "end")) over = true;
        if (events.length) onEvents(events);
        if (over) {
          onLink("ended");
          mine.abort();
          return;
        }
      }
    } catch (error) {
      if (error instanceof SyntaxError) console.error(error);
    } finally {
      clearTimeout(silence);
      entries.cut();
      if (connection === mine) {
        connection = null;
        if (!over && !document.hidden) again();
        else if (!over) onLink("resting");
      }
    }
  }

  function again() {
    onLink("lost");
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
