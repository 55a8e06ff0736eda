// The time that rows took, as bars over an axis that can be zoomed and moved.

import { panned, ticks, zoomed } from "../state/waterfall.js";
import { fill, h } from "./element.js";
import { duration } from "./format.js";
import { splitter } from "./splitter.js";

const ZOOM = 1.5;
const DRAGGED = 6; // pixels, from which on a press on the axis chooses a time
const USUAL = () => (matchMedia("(max-width: 900px)").matches ? 62 : 55); // percent of the names' column

/** The axis, the rows of `tree` (an element) with their bars, and the line between names and bars. */
export class Waterfall {
  /** `onChange` is called when other bars are to be drawn. */
  constructor(tree, onChange) {
    this.whole = { begin: 0, end: 1 };
    this.part = null; // what is shown of it; all of it without
    this.onChange = onChange;
    this.tree = tree;
    this.names = h("span", { class: "spent" }); // the head of what stands at the end of the names
    this.range = h("span", { class: "range", hidden: true });
    this.ticks = h("div", { class: "ticks", title: "Drag to zoom in on a time, double-click to see all" });
    this.axis = h("div", { class: "axis", "aria-hidden": "true" }, this.names, this.ticks);
    this.over = h("div", { class: "over" });
    this.element = h("div", { class: "waterfall" }, this.axis, tree, this.over);
    this.over.append(splitter(this.element, { name: "names", label: "Width of the names", usual: USUAL(), onMove: () => this.draw() }));
    this.#choosesTime();
    tree.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(tree);
  }

  get shown() {
    return this.part ?? this.whole;
  }

  /** The run takes this time by now. */
  setWhole(whole) {
    this.whole = whole;
    this.draw();
  }

  show(part) {
    this.part = part.begin <= this.whole.begin && part.end >= this.whole.end ? null : part;
    this.draw();
    this.onChange();
  }

  zoom(closer, about) {
    this.show(zoomed(this.shown, this.whole, closer ? 1 / ZOOM : ZOOM, about));
  }

  pan(part) {
    this.show(panned(this.shown, this.whole, part));
  }

  showAll() {
    this.show(this.whole);
  }

  /** Draws the axis where it is not drawn so already. */
  draw() {
    const wide = this.tree.clientWidth;
    for (const one of [this.axis, this.over]) one.style.width = `${wide}px`;
    const marks = ticks(this.shown, this.whole.begin, this.ticks.clientWidth);
    const signature = marks.map(({ part, words }) => `${part} ${words}`).join();
    if (this.drawn === signature) return;
    this.drawn = signature;
    fill(this.ticks, marks.map(({ part, words }) => {
      const mark = h("span", { class: "tick" }, words);
      mark.style.left = `${part * 100}%`;
      return mark;
    }), this.range);
  }

  /** A text that differs when bars do. */
  get signature() {
    return `${this.shown.begin} ${this.shown.end}`;
  }

  /** The bar of a row: the time that it waited, in the look of `before`, and the time of its work, in that of `state`. */
  lane({ start, work, end }, state, before) {
    const { begin, end: last } = this.shown;
    const until = end ?? this.whole.end;
    const begun = work ?? until;
    const bar = (look, from, to) => {
      if (to < begin || from > last) return null;
      const [left, right] = [Math.max(from, begin), Math.min(to, last)].map((time) => ((time - begin) / (last - begin)) * 100);
      const one = h("span", { class: `bar ${look}` });
      Object.assign(one.style, { left: `${left}%`, width: `${Math.max(right - left, 0)}%` });
      return one;
    };
    const waited = begun - start > 0.05 ? `, ${duration(begun - start)} before it began` : "";
    return h("span", { class: "lane", title: `${duration(until - start)}${waited}` },
      begun > start && bar(before, start, begun), work !== null && bar(state, begun, until), h("span", { class: "took" }, duration(until - start)));
  }

  #timeAt(x) {
    const { left, width } = this.ticks.getBoundingClientRect();
    return this.shown.begin + Math.min(Math.max((x - left) / Math.max(width, 1), 0), 1) * (this.shown.end - this.shown.begin);
  }

  #wheel(event) {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY < 0, this.#timeAt(event.clientX));
    else if (this.part && across && (event.shiftKey || Math.abs(across) > Math.abs(event.deltaY))) this.pan(Math.sign(across) * 0.1);
    else return;
    event.preventDefault();
  }

  /** A press on the axis that is drawn over some time shows that time. */
  #choosesTime() {
    let from = null;
    const sides = (x) => [Math.min(from, x), Math.max(from, x)];
    this.ticks.addEventListener("pointerdown", (event) => {
      from = event.clientX;
      this.ticks.setPointerCapture(event.pointerId);
    });
    this.ticks.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const [left, right] = sides(event.clientX);
      this.range.hidden = right - left < DRAGGED;
      Object.assign(this.range.style, { left: `${left - this.ticks.getBoundingClientRect().left}px`, width: `${right - left}px` });
    });
    this.ticks.addEventListener("pointerup", (event) => {
      const [left, right] = sides(event.clientX);
      this.range.hidden = true;
      from = null;
      if (right - left >= DRAGGED) this.show({ begin: this.#timeAt(left), end: this.#timeAt(right) });
    });
    this.ticks.addEventListener("pointercancel", () => {
      from = null;
      this.range.hidden = true;
    });
    this.ticks.addEventListener("dblclick", () => this.showAll());
  }

  close() {
    this.resized.disconnect();
  }
}
