// JSON whose numbers keep all of their digits: where a double would change one, it stays the text that it was. Pure.

/**
 * Keys below which stand values of agents, tools and people. There a number keeps its notation too (`1.0`, `1e5`, `-0`);
 * elsewhere, where the pages count with numbers, it is an ExactNumber only if a double has not its value.
 */
const VALUES = new Set(["arguments", "inputs", "args", "output", "result", "payload", "edits", "body", "observations"]);
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS = { t: ["true", true], f: ["false", false], n: ["null", null] };

/** A number as it was written. It counts as the double that is next to it. */
export class ExactNumber {
  constructor(text) {
    this.text = text;
    Object.freeze(this);
  }

  toString() {
    return this.text;
  }

  valueOf() {
    return Number(this.text);
  }

  toJSON() {
    throw new TypeError("an exact number is written by writeJson");
  }
}

/** Whether this is an object of JSON, neither a list nor a number. */
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof ExactNumber);

/** Whether this is a list or an object of JSON. */
export const isContainer = (value) => Array.isArray(value) || isObject(value);

/** The value of a text. Raises SyntaxError, which says where and what is wrong. */
export const parseJson = (text) => new Reader(text, false).whole(false);

/** The value that a person wrote: every number keeps its notation, and a key that stands twice in an object is refused. */
export const parseWritten = (text) => new Reader(text, true).whole(true);

class Reader {
  constructor(text, unique) {
    this.text = text;
    this.unique = unique;
    this.at = 0;
  }

  whole(exact) {
    const value = this.value(exact);
    this.space();
    if (this.at < this.text.length) this.fail("nothing more was expected");
    return value;
  }

  value(exact) {
    this.space();
    const begin = this.text[this.at];
    if (begin === "{") return this.object(exact);
    if (begin === "[") return this.list(exact);
    if (begin === '"') return this.string();
    const [word, meant] = WORDS[begin] ?? [];
    if (word && this.text.startsWith(word, this.at)) {
      this.at += word.length;
      return meant;
    }
    return this.number(exact);
  }

  object(exact) {
    const found = {};
    this.at += 1;
    if (this.next("}")) return found;
    do {
      this.space();
      if (this.text[this.at] !== '"') this.fail('a key in "…" was expected');
      const key = this.string();
      if (this.unique && Object.hasOwn(found, key)) this.fail(`the key ${JSON.stringify(key)} stands there twice`);
      if (!this.next(":")) this.fail("a colon was expected");
      const value = this.value(exact || VALUES.has(key));
      if (key === "__proto__") Object.defineProperty(found, key, { value, enumerable: true, configurable: true, writable: true });
      else found[key] = value;
    } while (this.next(","));
    if (!this.next("}")) this.fail("a comma or } was expected");
    return found;
  }

  list(exact) {
    const found = [];
    this.at += 1;
    if (this.next("]")) return found;
    do found.push(this.value(exact)); while (this.next(","));
    if (!this.next("]")) this.fail("a comma or ] was expected");
    return found;
  }

  string() {
    let end = this.at;
    let escapes;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) this.fail("a text has no end");
      escapes = 0;
      while (this.text[end - 1 - escapes] === "\\") escapes += 1;
    } while (escapes % 2);
    const raw = this.text.slice(this.at, end + 1);
    try {
      const value = JSON.parse(raw);
      this.at = end + 1;
      return value;
    } catch {
      return this.fail("a text has a character or an escape that JSON does not know");
    }
  }

  number(exact) {
    NUMBER.lastIndex = this.at;
    const [text] = NUMBER.exec(this.text) ?? this.fail(this.at < this.text.length ? "a value was expected" : "the end came too early");
    this.at = NUMBER.lastIndex;
    const number = Number(text);
    if (String(number) === text) return number;
    return exact || !isHeld(text, number) ? new ExactNumber(text) : number;
  }

  next(mark) {
    this.space();
    if (this.text[this.at] !== mark) return false;
    this.at += 1;
    return true;
  }

  space() {
    SPACE.lastIndex = this.at;
    SPACE.exec(this.text);
    this.at = SPACE.lastIndex;
  }

  fail(words) {
    const before = this.text.slice(0, this.at).split("\n");
    throw new SyntaxError(`no JSON at line ${before.length}, character ${before.at(-1).length + 1}: ${words}`);
  }
}

/** Whether the shortest decimal number of this double is the one of the text, in whatever notation. */
const isHeld = (text, number) => Number.isFinite(number) && decimal(text) === decimal(String(number));

/** A decimal number as its digits and an exponent, the same for all notations of one value. */
function decimal(text) {
  const [, sign, whole, part = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text);
  const digits = (whole + part).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  return short && `${sign}${short}e${Number(exponent) - part.length + digits.length - short.length}`;
}

/** The value as JSON, as `JSON.stringify` writes it; `indent` is the number of blanks before what lies deeper. */
export function writeJson(value, indent = 0) {
  return write(value, indent, "\n");
}

function write(value, indent, newline) {
  if (value instanceof ExactNumber) return value.text;
  if (!isContainer(value)) return JSON.stringify(value);
  const inner = indent ? newline + " ".repeat(indent) : "";
  const list = Array.isArray(value);
  const parts = list ? value.map((one) => write(one, indent, inner) ?? "null") : [];
  if (!list) {
    for (const [key, one] of Object.entries(value)) {
      const text = write(one, indent, inner);
      if (text !== undefined) parts.push(`${JSON.stringify(key)}:${indent ? " " : ""}${text}`);
    }
  }
  const [open, close] = list ? "[]" : "{}";
  if (!parts.length) return open + close;
  return open + inner + parts.join(`,${inner}`) + (indent ? newline : "") + close;
}

/** Whether two values are the same, in whatever order the keys of their objects stand; numbers by their texts. */
export function same(left, right) {
  if (left === right) return true;
  if (left instanceof ExactNumber && right instanceof ExactNumber) return left.text === right.text;
  if (!isContainer(left) || !isContainer(right) || Array.isArray(left) !== Array.isArray(right)) return false;
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => Object.hasOwn(right, key) && same(left[key], right[key]));
}
