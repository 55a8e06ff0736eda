// Numbers and times as people read them. Pure.

import { writeJson } from "../exact_json.js";

/** `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const s = Math.max(seconds, 0);
  if (s < 0.0995) return `${Math.round(s * 1000)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const all = Math.round(s);
  if (all < 3600) return `${Math.floor(all / 60)} min${all % 60 ? ` ${all % 60} s` : ""}`;
  if (all < 86_400) return `${Math.floor(all / 3600)} h ${Math.floor((all % 3600) / 60)} min`;
  return `${Math.floor(all / 86_400)} d ${Math.floor((all % 86_400) / 3600)} h`;
}

/** `950`, `12.3k`, `4.5M`. */
export function count(number) {
  if (number < 10_000) return String(number ?? 0);
  return number < 999_950 ? `${(number / 1000).toFixed(1)}k` : `${(number / 1e6).toFixed(1)}M`;
}

/** A cost in the currency of the price table; empty where nothing was priced. */
export function cost(amount) {
  if (!amount) return "";
  return amount < 0.01 ? amount.toPrecision(2) : amount.toFixed(2);
}

/** Return the cost, or the tokens where nothing was priced; empty for nothing. */
export const spentText = (spent) => cost(spent.cost) || (spent.tokens ? `${count(spent.tokens)} tok` : "");

/** A time of day, with the date where it is not of today. */
export function clock(at, now = Date.now() / 1000) {
  if (!at) return "";
  const date = new Date(at * 1000);
  const sameDay = date.toDateString() === new Date(now * 1000).toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return sameDay ? time : `${date.toLocaleDateString()} ${time}`;
}

/** `3 min ago` or `in 3 min`. */
export function relative(at, now = Date.now() / 1000) {
  if (!at) return "";
  return at > now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`;
}

/** Why the events of a run do not come, and when they are asked for again. */
export const lostText = ({ reason, seconds }) => `connection lost (${reason}), trying again in ${duration(seconds)}`;

/** The text in one line, cut. */
export function brief(value, most = 160) {
  const text = (typeof value === "string" ? value : writeJson(value) ?? "").replace(/\s+/g, " ").trim();
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Bytes as `12 kB`. */
export function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

/** Arguments of a call in one line: `city="Bern", days=3`. */
export function argumentsText(args, most = 120) {
  if (typeof args === "string") return brief(args, most);
  return brief(Object.entries(args ?? {}).map(([name, value]) => `${name}=${writeJson(value)}`).join(", "), most);
}

/** The error of a run, a step or a call; empty without one. What repeats the call is left out: that is shown anyway. */
export function errorText(error) {
  if (!error) return "";
  const message = [...(error.message ?? "")].slice(error.preamble ?? 0).join("");
  return ["tool-failed", "member-failed", "timed-out", "invalid-call"].includes(error.code) ? message : `${error.type}: ${message}`;
}
