// Answers in Markdown as elements, a subset: paragraphs, headings, lists, quotes, tables, code, emphasis and links. What
// is in no form of it stays as it is written; markup is text. The time is linear in the text, also for hostile input.

import { h } from "./element.js";

const MAX_DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])[ \t]+(?=\S)/;
const RULED = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const LINK = /!?\[([^[\]]{0,1000})\]\([ \t]*<?([^\s<>()]{1,2000}(?:\([^\s<>()]{0,500}\)[^\s<>()]{0,500})?)>?(?:[ \t]+"[^"\n]{0,500}")?[ \t]*\)/y;
const ADDRESS = /<?(https?:\/\/[^\s<>"`]{1,2000})>?/y;
const MARKS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };

/** The text as elements. */
export const markdown = (text) => h("div", { class: "markdown" }, blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0));

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const begin = at;
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      const body = [];
      for (at += 1; at < lines.length && !closes(lines[at], fence[1]); at += 1) body.push(lines[at]);
      at += 1;
      found.push(h("pre", null, h("code", null, body.join("\n"))));
    } else if (HEADING.test(line)) {
      const [, marks, words] = HEADING.exec(line);
      found.push(h(`h${Math.min(marks.length + 2, 6)}`, null, inline(words.replace(/[ \t]+#+[ \t]*$/, ""))));
      at += 1;
    } else if (RULE.test(line)) {
      found.push(h("hr", null));
      at += 1;
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      for (; at < lines.length && QUOTE.test(lines[at]); at += 1);
      found.push(h("blockquote", null, blocks(lines.slice(begin, at).map((one) => one.replace(QUOTE, "")), depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const list = items(lines, at, depth);
      found.push(list.element);
      at = list.end;
    } else if (line.includes("|") && RULED.test(lines[at + 1] ?? "") && cells(lines[at + 1]).length === cells(line).length) {
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1);
      const heads = cells(line);
      const rows = lines.slice(begin + 2, at).map((one) => cells(one));
      found.push(h("div", { class: "scroll" }, h("table", null,
        h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, inline(one))))),
        h("tbody", null, rows.map((row) => h("tr", null, heads.map((_, place) => h("td", null, inline(row[place] ?? ""))))))))
      );
    } else {
      for (at += 1; at < lines.length && lines[at].trim() && !begins(lines[at]); at += 1);
      found.push(h("p", null, inline(lines.slice(begin, at).join("\n"))));
    }
  }
  return found;
}

const closes = (line, mark) => line.trim().startsWith(mark) && new Set(line.trim()).size === 1;

const begins = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line);

/** The list that begins at this line, and the line behind it. What is indented below an item is part of it. */
function items(lines, from, depth) {
  const ordered = /\d/.test(ITEM.exec(lines[from])[2]);
  const found = [];
  let at = from;
  while (at < lines.length) {
    const head = ITEM.exec(lines[at]);
    if (!head || /\d/.test(head[2]) !== ordered || RULE.test(lines[at])) break;
    const width = head[0].length;
    const body = [lines[at].slice(width)];
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const indent = line.length - line.trimStart().length;
      if (line.trim() && indent < 2 && (begins(line) || !lines[at - 1].trim())) break;
      body.push(line.slice(Math.min(indent, width)));
    }
    found.push(body);
    while (at < lines.length && !lines[at].trim()) at += 1;
  }
  const first = Number.parseInt(ITEM.exec(lines[from])[2], 10);
  const of = (body) => (body.length === 1 ? inline(body[0]) : blocks(body, depth + 1).flatMap((one, place) => (place === 0 && one.tagName === "P" ? [...one.childNodes] : [one])));
  return { element: h(ordered ? "ol" : "ul", { start: ordered && first !== 1 ? first : undefined }, found.map((body) => h("li", null, of(body)))), end: at };
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((one) => one.trim());

/** The text of one block as nodes: code, emphasis, links; everything else as it is. */
function inline(text, depth = 0) {
  const found = [];
  const unclosed = new Set(); // marks and lengths of backticks that nothing closes from here on
  let plain = "";
  let at = 0;
  const put = (node, length) => {
    if (plain) found.push(plain);
    plain = "";
    found.push(node);
    at += length;
  };
  while (at < text.length) {
    const sign = text[at];
    const mark = Object.keys(MARKS).find((one) => text.startsWith(one, at));
    const code = sign === "`" && codeAt(text, at, unclosed);
    const link = (sign === "[" || sign === "!" || sign === "h" || sign === "<") && linkAt(text, at, depth);
    const end = mark && depth < MAX_DEPTH && !unclosed.has(mark) && opens(text, at, mark) ? closing(text, at + mark.length, mark, unclosed) : -1;
    if (sign === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (code) put(code.node, code.length);
    else if (link) put(link.node, link.length);
    else if (end > 0) put(h(MARKS[mark], null, inline(text.slice(at + mark.length, end), depth + 1)), end + mark.length - at);
    else {
      const length = mark ? mark.length : sign === "`" ? /`+/y.exec(text.slice(at, at + 100))[0].length : 1;
      plain += text.slice(at, at + length);
      at += length;
    }
  }
  return plain ? [...found, plain] : found;
}

function codeAt(text, at, unclosed) {
  let length = 1;
  while (text[at + length] === "`") length += 1;
  const fence = "`".repeat(length);
  if (unclosed.has(fence)) return null;
  let end = text.indexOf(fence, at + length);
  while (end >= 0 && (text[end + length] === "`" || text[end - 1] === "`")) {
    while (text[end] === "`") end += 1;
    end = text.indexOf(fence, end);
  }
  if (end < 0) {
    unclosed.add(fence);
    return null;
  }
  return { node: h("code", null, text.slice(at + length, end).replace(/^ (.*\S.*) $/, "$1")), length: end + length - at };
}

function linkAt(text, at, depth) {
  LINK.lastIndex = at;
  const written = LINK.exec(text);
  if (written) {
    const address = webAddress(written[2]);
    const words = written[1] || written[2];
    return address && { node: anchor(address, depth < MAX_DEPTH ? inline(words, MAX_DEPTH) : words), length: written[0].length };
  }
  if (/\w/.test(text[at - 1] ?? "")) return null;
  ADDRESS.lastIndex = at;
  const bare = ADDRESS.exec(text);
  if (!bare) return null;
  const isMarked = bare[0][0] === "<" && bare[0].at(-1) === ">";
  if (text[at] === "<" && !isMarked) return null;
  const shown = isMarked ? bare[1] : bare[1].replace(/[.,;:!?'")\]*_~]{1,20}$/, "");
  const address = webAddress(shown);
  return address && { node: anchor(address, shown), length: isMarked ? bare[0].length : shown.length };
}

const anchor = (address, words) => h("a", { href: address, title: address, rel: "noopener noreferrer nofollow", target: "_blank" }, words);

/** The address, if it leads to the web and to nothing else; else null. */
function webAddress(written) {
  if (!URL.canParse(written)) return null;
  const { protocol, href } = new URL(written);
  return protocol === "http:" || protocol === "https:" ? href : null;
}

const isWord = (sign) => sign !== undefined && /[\p{L}\p{N}]/u.test(sign);

function opens(text, at, mark) {
  const next = text[at + mark.length];
  return next !== undefined && next.trim() !== "" && !(mark[0] === "_" && isWord(text[at - 1]));
}

/** Where the mark closes behind `from`; -1, and noted, where it does not. */
function closing(text, from, mark, unclosed) {
  for (let end = text.indexOf(mark, from); end >= 0; end = text.indexOf(mark, end + mark.length)) {
    if (mark.length === 2 && mark[0] === "*" && text[end + 2] === "*" && text[end + 3] !== "*") end += 1;
    const isDouble = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    if (end > from && !isDouble && text[end - 1].trim() && !(mark[0] === "_" && isWord(text[end + mark.length]))) return end;
  }
  unclosed.add(mark);
  return -1;
}
