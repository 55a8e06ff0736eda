// What people write of schedules, triggers, notices and budgets: the fields of their forms, and the specification that
// follows from what is typed in. Pure.

import { ExactNumber, isObject, parseWritten, same, writeJson } from "../exact_json.js";

const OPTIONS = { key: "options", type: "json", label: "Options of its runs", hint: "JSON, as POST /v1/runs takes it: max_steps, deadline, budget, user …", more: true };
const OF_RUN = (names) => [
  { key: "agent", type: "agent", label: "Agent", required: true },
  { key: "task", type: "area", label: "Task", required: true, hint: `A template; it may use ${names}.` },
];
const SECRET = (key) => ({ key, label: "Variable of the secret", hint: "The environment variable of the gateways, CADRE_SECRET_…; never the secret itself." });

/** The kinds of definitions: `right` is what writing one needs; `fields` have a `key` of the specification. */
export const KINDS = {
  schedule: { plural: "schedules", words: "Schedule", right: "act", fields: [
    ...OF_RUN("tick, count and schedule"),
    { key: "every", type: "length", label: "Every", hint: "10m, 2h, 1d", one: "when" },
    { key: "cron", label: "Cron expression", hint: "minute, hour, day, month, weekday: 30 7 * * mon-fri", one: "when" },
    { key: "start", type: "time", label: "From", hint: "No tick is before it. Alone it is the time of one single tick.", one: "when" },
    { key: "time_zone", label: "Time zone", hint: "Such as Europe/Berlin" },
    { key: "overlap", type: "choice", options: ["skip", "queue", "allow", "cancel"], label: "If the previous run has not ended", more: true, fallback: "skip" },
    { key: "missed", type: "choice", options: ["one", "skip", "all"], label: "Ticks that were missed", hint: "Make up for the last one, for none, or for all.", more: true, fallback: "one" },
    { key: "end", type: "time", label: "Until", more: true },
    { key: "count", type: "number", label: "Ticks in all", more: true },
    { key: "window", type: "length", label: "Make up at most for", hint: "1d", more: true },
    { key: "jitter", type: "length", label: "Delay by up to", hint: "30s", more: true },
    OPTIONS,
  ] },
  trigger: { plural: "triggers", words: "Trigger", right: "administer", fields: [
    ...OF_RUN("payload, id, trigger and subject"),
    { key: "subject", label: "Subject on the bus", hint: "orders.created, orders.*, orders.>; for messages", one: "source" },
    { ...SECRET("webhook.secret_env"), hint: "For signed webhooks: the environment variable of the gateways, CADRE_SECRET_…; never the secret itself.", one: "source" },
    { key: "webhook.tolerance", type: "length", label: "A signed time may be off by", hint: "5m", more: true },
    { key: "plan", type: "list", label: "Tools that count as planned", more: true },
    OPTIONS,
  ] },
  notice: { plural: "notices", words: "Notice", right: "administer", fields: [
    { key: "url", label: "Address", required: true, hint: "https://HOST/PATH" },
    { ...SECRET("secret_env"), required: true },
    { key: "events", type: "several", options: ["run.finished", "approval.requested", "budget.warning", "budget.standing_warning", "budget.standing_exhausted"], label: "Events", hint: "None chosen: all" },
    { key: "states", type: "several", options: ["success", "max_steps_error", "error", "cancelled"], label: "Runs that ended so", hint: "None chosen: all" },
    { key: "agents", type: "list", label: "Agents", hint: "Names with commas between them; empty: all" },
    { key: "attempts", type: "number", label: "Tries of one delivery", more: true },
  ] },
  budget: { plural: "budgets", words: "Budget", right: "administer", fields: [
    { key: "window", type: "choice", options: ["hour", "day", "week", "month"], label: "In each", required: true, initial: "day" },
    { key: "tokens", type: "number", label: "Tokens at most", one: "limit" },
    { key: "cost", type: "number", label: "Cost at most", hint: "In the currency of the price table", one: "limit" },
    { key: "user", label: "User", hint: "A name, or * for as much for each user; empty: all together" },
    { key: "team", type: "agent", label: "Team", hint: "Trees that begin with this agent" },
    { key: "agent", type: "agent", label: "Agent", hint: "Its own calls alone, in whatever tree" },
    { key: "time_zone", label: "Time zone", hint: "Such as Europe/Berlin", more: true },
  ] },
};

/** What is wrong in a field, in words; `field` is its key. */
export class FieldError extends Error {
  constructor(field, words) {
    super(words);
    this.field = field;
  }
}

/** The specification of a definition as the API shows it, without its name. */
export function specOf(kind, shown) {
  if (isObject(shown.spec)) return shown.spec;
  const known = new Set(KINDS[kind].fields.flatMap(({ key }) => [key.split(".")[0]]).concat("paused"));
  return Object.fromEntries(Object.entries(shown).filter(([key]) => known.has(key)));
}

/** The text, or the list of texts, that a field shows of a specification. */
export function shownOf(field, spec) {
  const value = field.key.split(".").reduce((found, part) => (isObject(found) ? found[part] : undefined), spec);
  if (field.type === "several") return value ?? [];
  if (value === undefined || value === null) return "";
  if (field.type === "list") return value.join(", ");
  if (field.type === "json") return isObject(value) && !Object.keys(value).length ? "" : writeJson(value, 2);
  return String(value);
}

/**
 * The specification that the form says, on the ground of the one that was there; `typed(key)` is the text, or the list, of
 * a field. An empty field is left out. Raises FieldError.
 */
export function readSpec(kind, typed, before = {}) {
  const spec = { ...before };
  for (const field of KINDS[kind].fields) {
    const given = typed(field.key);
    const shown = shownOf(field, before);
    if (same(given, shown)) continue; // unchanged in the form: it keeps every digit
    put(spec, field.key, valueOf(field, given));
  }
  for (const { key, label, required } of KINDS[kind].fields) if (required && !shownOf({ key }, spec)) throw new FieldError(key, `${label} is missing`);
  for (const group of new Set(KINDS[kind].fields.map(({ one }) => one).filter(Boolean))) {
    const able = KINDS[kind].fields.filter(({ one }) => one === group);
    if (!able.some(({ key }) => shownOf({ key }, spec))) throw new FieldError(able[0].key, `Fill in ${able.map(({ label }) => label).join(" or ")}`);
  }
  return spec;
}

function put(spec, key, value) {
  const [head, below] = key.split(".");
  if (below) {
    const inner = { ...spec[head] };
    put(inner, below, value);
    put(spec, head, inner.secret_env === undefined ? undefined : inner);
  } else if (value === undefined) delete spec[head];
  else spec[head] = value;
}

function valueOf({ key, type, label }, given) {
  if (type === "several") return given.length ? given : undefined;
  const text = given.trim();
  if (!text) return undefined;
  if (type === "list") return text.split(",").map((one) => one.trim()).filter(Boolean);
  if (type === "length") return /^\d+(\.\d+)?$/.test(text) ? parseWritten(text) : text;
  if (type === "number") return number(key, label, text);
  if (type === "json") return object(key, text);
  return type === "area" ? given : text;
}

function number(key, label, text) {
  const words = `“${text}” is not a number`;
  let value;
  try {
    value = parseWritten(text);
  } catch {
    throw new FieldError(key, words);
  }
  if (typeof value !== "number" && !(value instanceof ExactNumber)) throw new FieldError(key, words);
  return value;
}

function object(key, text) {
  let value;
  try {
    value = parseWritten(text);
  } catch (error) {
    throw new FieldError(key, `This is not JSON: ${error.message}`);
  }
  if (!isObject(value)) throw new FieldError(key, "Write a JSON object, {…}");
  return value;
}
