// The part of a run's time that its waterfall shows, the marks of its axis, and the rows that one jumps to. No DOM.
// Times are Unix seconds, lengths of time seconds.

import { visibleRows } from "./run_tree.js";

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
const LETTER = 6.5; // pixels of a character of the axis
const GAP = 14; // pixels between two labels
const SHORTEST = 0.001; // seconds that are shown at least

/** The marks of an axis that is so many pixels wide, as `{part, words}`: from 0 to 1, with the time since `origin`. */
export function ticks({ begin, end }, origin, pixels) {
  const wide = end - begin;
  if (!(pixels > GAP) || !(wide > 0)) return [];
  const [first, last] = [begin - origin, end - origin];
  for (const step of stepsFrom(wide / pixels)) {
    const words = (at) => tickText(at, step, last);
    const room = words(last).length * LETTER + GAP;
    if ((step / wide) * pixels < room) continue;
    const found = [];
    for (let number = Math.ceil(first / step - 1e-6); number * step <= last + step * 1e-6; number += 1) {
      found.push({ part: Math.min(Math.max((number * step - first) / wide, 0), 1), words: words(number * step) });
    }
    return found.length ? found : [{ part: 0, words: words(first) }];
  }
  return [];
}

/** Lengths of time that read well, from so many seconds up: 1, 2, 5 times a power of ten below a second, days above. */
function* stepsFrom(least) {
  for (let power = -4; power < 0; power += 1) for (const digit of [1, 2, 5]) if (digit * 10 ** power >= least) yield digit * 10 ** power;
  for (const step of STEPS) if (step >= least) yield step;
  for (let step = 2 * STEPS.at(-1); ; step *= 2) if (step >= least) yield step;
}

/** `0.05 s`, `12 s`, `2:05`, `1:02:05`; as exact as the step, in the form of the last mark. */
function tickText(seconds, step, last) {
  const digits = step >= 1 ? 0 : Math.min(4, Math.ceil(-Math.log10(step) - 1e-9));
  const whole = Math.max(0, seconds);
  if (last < 60) return `${whole.toFixed(digits)} s`;
  const rest = (Math.round(whole * 10 ** digits) / 10 ** digits) % 60;
  const minutes = Math.floor((whole + 1e-9 - rest + 0.5) / 60);
  const tail = rest.toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  if (last < 3600) return `${minutes}:${tail}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${tail}`;
}

/** What is shown when `shown`, a part of `whole`, is made `factor` times as long about a time in it. */
export function zoomed(shown, whole, factor, about = (shown.begin + shown.end) / 2) {
  const wide = Math.max((shown.end - shown.begin) * factor, SHORTEST);
  if (wide >= whole.end - whole.begin) return { ...whole };
  const begin = about - ((about - shown.begin) / (shown.end - shown.begin)) * wide;
  return within({ begin, end: begin + wide }, whole);
}

/** What is shown when it is moved by a part of itself. */
export function panned(shown, whole, part) {
  const by = (shown.end - shown.begin) * part;
  return within({ begin: shown.begin + by, end: shown.end + by }, whole);
}

function within({ begin, end }, whole) {
  const by = Math.max(whole.begin - begin, 0) || Math.min(whole.end - end, 0);
  return { begin: Math.max(begin + by, whole.begin), end: Math.min(end + by, whole.end) };
}

const OPEN = { get: () => true };

/** All rows as `visibleRows` gives them, those that are folded away too. */
export const allRows = (tree) => visibleRows(tree, OPEN);

const at = (rows, key) => rows.findIndex((one) => one.key === key);

/** The key of the next row after one that failed and has no failed row below; from the first again; undefined without one. */
export function nextError(rows, key) {
  const isCause = ({ row, depth }, place) => {
    if (row.state !== "failed") return false;
    for (let next = place + 1; next < rows.length && rows[next].depth > depth; next += 1) if (rows[next].row.state === "failed") return false;
    return true;
  };
  const failed = rows.flatMap((one, place) => (isCause(one, place) ? [place] : []));
  return rows[failed.find((place) => place > at(rows, key)) ?? failed[0]]?.key;
}

/** The key of the row directly below one that took the longest by `now`; undefined where nothing is below. */
export function longestChild(rows, key, now) {
  const place = at(rows, key);
  if (place < 0) return undefined;
  const { depth } = rows[place];
  let longest;
  for (let next = place + 1; next < rows.length && rows[next].depth > depth; next += 1) {
    const { row, call, key: own } = rows[next];
    if (rows[next].depth > depth + 1 || row.kind === "note" || row.kind === "events") continue;
    const took = (row.ended_at || now) - (call?.asked_at ?? row.asked_at);
    if (longest === undefined || took > longest.took) longest = { key: own, took };
  }
  return longest?.key;
}

/**
 * Return the key of the row below one in which most was spent: the dearest child, and on down from it while one row has half
 * of what the first one spent. `spent(key)` gives the amount; undefined where nothing was spent below.
 */
export function dearestBelow(rows, key, spent) {
  const half = spent(key) / 2;
  let found;
  let place = at(rows, key);
  while (place >= 0) {
    const { depth } = rows[place];
    let dearest = -1;
    for (let next = place + 1; next < rows.length && rows[next].depth > depth; next += 1) {
      if (rows[next].depth === depth + 1 && spent(rows[next].key) > (rows[dearest] ? spent(rows[dearest].key) : 0)) dearest = next;
    }
    if (dearest < 0 || (found !== undefined && spent(rows[dearest].key) < half)) break;
    found = rows[dearest].key;
    place = dearest;
  }
  return found;
}

/** The keys of the rows that have all of the words in what they say. */
export function matches(rows, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return rows.filter(({ row, call }) => {
    const said = [row, call].flatMap((one) => (one ? [one.name, one.brief, one.text, one.words, one.remark, one.result, one.error, ...one.lines] : [])).join(" ").toLowerCase();
    return row.kind !== "events" && words.every((word) => said.includes(word));
  }).map((one) => one.key);
}
