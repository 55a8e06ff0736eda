// Elements of the page. Content goes in as text and never as markup.

/**
 * A new element. `props`: `class`, `on…` listeners, `dataset`; properties that the element has; else attributes.
 * Children: elements, texts and numbers, lists of these; null, undefined and false are left out.
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && name !== "role") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** A new element of a drawing; all of `attributes` are set as such. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Puts these children in the place of all that the element has. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** A table; `rows` are lists of cells. */
export function table(heads, rows, caption) {
  return h("div", { class: "scroll" },
    h("table", { class: "stacked" },
      caption && h("caption", null, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell, place) => h("td", { "data-label": heads[place] }, cell)))))));
}

const FOCUSABLE = "a, button, input, select, summary";

/**
 * A table whose rows stay the elements that they are while their items do: focus, selection and place on the page stay
 * with them. `columns` are `{name, head, cell(item)}`; `draw(items)` shows these items, each known by its `key`. What a
 * cell does later must look up its item by that key.
 */
export function liveTable(columns, key, { label } = {}) {
  const rows = new Map();
  const head = h("tr", null);
  const body = h("tbody", null);
  const element = h("div", { class: "scroll", role: label && "region", "aria-label": label, tabIndex: label ? 0 : undefined }, h("table", { class: "stacked" }, h("thead", null, head), body));
  let shown = [];

  function setColumns(wanted) {
    shown = wanted;
    fill(head, shown.map((one) => h("th", { scope: "col", class: `c-${one.name}` }, one.head)));
    for (const row of rows.values()) row.replaceChildren();
  }

  function drawRow(row, item) {
    const cells = shown.map((one) => h("td", { class: `c-${one.name}`, "data-label": typeof one.head === "string" ? one.head : "" }, one.cell(item)));
    if (row.children.length !== cells.length) {
      row.replaceChildren(...cells);
      return;
    }
    cells.forEach((cell, at) => {
      const old = row.children[at];
      if (old.isEqualNode(cell)) return;
      const focused = [...old.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
      old.replaceWith(cell);
      if (focused >= 0) cell.querySelectorAll(FOCUSABLE)[focused]?.focus();
    });
  }

  function draw(items) {
    const wanted = new Set(items.map(key));
    for (const [id, row] of rows) {
      if (wanted.has(id)) continue;
      row.remove();
      rows.delete(id);
    }
    let place = body.firstChild;
    for (const item of items) {
      let row = rows.get(key(item));
      if (!row) rows.set(key(item), (row = h("tr", { dataset: { key: key(item) } })));
      drawRow(row, item);
      if (row === place) place = place.nextSibling;
      else body.insertBefore(row, place);
    }
  }

  setColumns(columns);
  return { element, draw, setColumns, rows: () => [...body.children] };
}

/** The text with what stands in backticks as code: for words of the console and of people. */
export function withCode(text) {
  return String(text ?? "").split(/(`+[^`]+`+)/).map((part) => (/^(`+)[^`]+\1$/.test(part) ? h("code", null, part.replace(/^`+|`+$/g, "")) : part));
}

/** What there is to say where a list is empty. */
export const empty = (...words) => h("p", { class: "empty" }, words.map((one) => (typeof one === "string" ? withCode(one) : one)));

/** What went wrong, for people and screen readers. */
export const alert = (words) => h("p", { class: "alert", role: "alert" }, typeof words === "string" ? withCode(words) : words);

/** A state as a coloured mark with its word. */
export const badge = (mark, words) => h("span", { class: `badge ${mark}` }, words);

/** Tells something for a moment. */
export function toast(words, bad = false) {
  const note = h("p", { class: bad ? "toast bad" : "toast" }, withCode(words));
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), bad ? 10_000 : 4_000);
}

/** A button that is locked while its work goes on, and tells what went wrong. */
export function button(words, work, props = {}) {
  const element = h("button", { type: "button", ...props }, words);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await work();
    } catch (error) {
      toast(error.message, true);
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

/** A modal dialog with a form. `submit` gets the form's data; its errors are shown in the dialog. Without an action there
 * is nothing to submit. */
export function dialog(title, fields, action, submit) {
  const problem = h("div", null);
  const close = () => box.close();
  const go = h("button", { type: "submit", class: "primary" }, action);
  const form = h("form", { method: "dialog" },
    h("h2", null, title), fields, problem,
    h("div", { class: "actions" }, action && go, h("button", { type: "button", onclick: close }, "Close")));
  const box = h("dialog", { "aria-label": title, onclose: () => box.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await submit(new FormData(form));
      close();
    } catch (error) {
      fill(problem, alert(error.message));
    } finally {
      go.disabled = false;
    }
  });
  document.body.append(box);
  box.showModal();
  return box;
}

/** A labelled field of a form. */
export function field(label, control, hint) {
  return h("div", { class: "field" }, h("label", null, h("span", null, label), control), hint && h("small", null, withCode(hint)));
}
