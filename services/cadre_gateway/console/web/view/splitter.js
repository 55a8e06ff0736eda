// A line between two parts of a page that is dragged, or moved with keys, to make one of them wider. The browser keeps it.

import { h, toast } from "./element.js";
import { keep, kept } from "./kept.js";

const BY_KEY = 2; // percent

/**
 * The line, for `box`, whose property `--NAME` is the share of its width in percent that lies before the line. `usual` is
 * where it is at first and after a double click; `onMove` is called when it has moved.
 */
export function splitter(box, { name, label, usual, least = 15, most = 85, onMove = () => {} }) {
  const line = h("div", {
    class: `splitter at-${name}`, role: "separator", tabIndex: 0, "aria-orientation": "vertical", "aria-label": label,
    "aria-valuemin": least, "aria-valuemax": most, title: `${label}: drag, or use the arrow keys; double-click resets`,
    onpointerdown: (event) => { event.preventDefault(); line.focus(); line.setPointerCapture(event.pointerId); },
    onpointermove: (event) => line.hasPointerCapture(event.pointerId) && drag(event.clientX),
    onpointerup: () => save(),
    ondblclick: () => { move(usual); save(); },
    onkeydown: (event) => {
      const goal = { ArrowLeft: share - BY_KEY, ArrowRight: share + BY_KEY, Home: least, End: most, Enter: usual }[event.key];
      if (goal === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      move(goal);
      save();
    },
  });
  let share = usual;
  const before = kept(`split ${name}`, usual);
  move(typeof before === "number" ? before : usual);

  function drag(x) {
    const { left, width } = line.parentElement.getBoundingClientRect();
    move(((x - left) / width) * 100);
  }

  function save() {
    try {
      keep(`split ${name}`, share === usual ? null : share);
    } catch (error) {
      toast(error.message, true);
    }
  }

  function move(wanted) {
    share = Math.round(Math.min(Math.max(wanted, least), most) * 10) / 10;
    box.style.setProperty(`--${name}`, `${share}%`);
    line.setAttribute("aria-valuenow", Math.round(share));
    onMove();
  }

  return line;
}
