// A tree of rows of one height, of which only those in view are elements: 100,000 rows cost as much as 50.

import { h } from "./element.js";
import { faultText } from "./fault.js";

const SPARE_ROWS = 8;

/**
 * `draw(row)` gives the children of a row's element, `signature(row)` a text that differs when they would. `onSelect`
 * and `onToggle` get the row. `rows` of `show` have `key`, `depth`, `expanded`, `expandable`.
 */
export class VirtualTree {
  constructor({ label, draw, signature, onSelect, onToggle }) {
    Object.assign(this, { draw, signature, onSelect, onToggle });
    this.rows = [];
    this.drawn = new Map(); // element and signature by key
    this.selected = null;
    this.filler = h("div", { class: "rows", role: "presentation" });
    this.element = h("div", {
      class: "tree", role: "tree", tabIndex: 0, "aria-label": label,
      onscroll: () => this.paint(), onclick: (event) => this.#click(event), onkeydown: (event) => this.#key(event),
    }, this.filler);
    this.resized = new ResizeObserver(() => this.paint());
    this.resized.observe(this.element);
  }

  show(rows) {
    const atEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 4;
    const grew = rows.length > this.rows.length;
    this.rows = rows;
    this.height ||= Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 28;
    this.filler.style.height = `${rows.length * this.height}px`;
    if (grew && atEnd && this.following) this.element.scrollTop = this.element.scrollHeight;
    this.paint();
  }

  paint() {
    if (!this.height) return;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - SPARE_ROWS);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + SPARE_ROWS);
    const stale = new Set(this.drawn.keys());
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      stale.delete(row.key);
      this.#drawRow(row, index);
    }
    for (const key of stale) {
      this.drawn.get(key).element.remove();
      this.drawn.delete(key);
    }
    if (this.selected && this.drawn.has(this.selected)) this.element.setAttribute("aria-activedescendant", idOf(this.selected));
    else this.element.removeAttribute("aria-activedescendant");
  }

  #drawRow(row, index) {
    let known = this.drawn.get(row.key);
    if (!known) {
      known = { element: h("div", { class: "row", role: "treeitem", id: idOf(row.key), dataset: { key: row.key } }), signature: null };
      this.drawn.set(row.key, known);
      this.filler.append(known.element);
    }
    const { element } = known;
    element.style.transform = `translateY(${index * this.height}px)`;
    const signature = `${row.depth} ${row.expanded} ${row.expandable} ${row.key === this.selected} ${index} ${this.#signature(row)}`;
    if (known.signature === signature) return;
    known.signature = signature;
    element.setAttribute("aria-level", row.depth + 1);
    element.setAttribute("aria-selected", row.key === this.selected);
    if (row.expandable) element.setAttribute("aria-expanded", row.expanded);
    else element.removeAttribute("aria-expanded");
    element.replaceChildren(...this.#children(row));
  }

  #signature(row) {
    try {
      return this.signature(row);
    } catch (error) {
      return `fault ${error.message}`;
    }
  }

  /** One row that cannot be drawn does not take the others with it. */
  #children(row) {
    try {
      return this.draw(row);
    } catch (error) {
      reportError(error);
      return [h("span", { class: "label bad" }, faultText(error))];
    }
  }

  select(key, { scroll = false } = {}) {
    this.selected = key;
    const index = this.rows.findIndex((row) => row.key === key);
    if (scroll && index >= 0) {
      const top = index * this.height;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      else if (top + this.height > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + this.height - this.element.clientHeight;
    }
    this.paint();
    if (index >= 0) this.onSelect(this.rows[index]);
  }

  #click(event) {
    const key = event.target.closest("[data-key]")?.dataset.key;
    const row = this.rows.find((one) => one.key === key);
    if (!row) return;
    if (event.target.closest(".twist") && row.expandable) this.onToggle(row);
    this.select(key);
  }

  #key(event) {
    const index = this.rows.findIndex((row) => row.key === this.selected);
    const row = this.rows[index];
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const goals = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0, End: this.rows.length - 1 };
    let goal = goals[event.key];
    if (event.key === "ArrowRight" && row) {
      if (row.expandable && !row.expanded) this.onToggle(row);
      else if (row.expandable) goal = index + 1;
    } else if (event.key === "ArrowLeft" && row) {
      if (row.expanded) this.onToggle(row);
      else goal = this.rows.slice(0, index).findLastIndex((one) => one.depth < row.depth);
    } else if ((event.key === "Enter" || event.key === " ") && row?.expandable) this.onToggle(row);
    else if (goal === undefined) return;
    event.preventDefault();
    if (goal !== undefined && goal >= -1 && this.rows.length) {
      this.select(this.rows[Math.min(Math.max(goal, 0), this.rows.length - 1)].key, { scroll: true });
    }
  }

  close() {
    this.resized.disconnect();
  }
}

const idOf = (key) => `row-${key.replace(/[^\w-]/g, "-")}`;
