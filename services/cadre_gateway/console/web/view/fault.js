// Faults of the page itself: shown with what to do, once each, while the page goes on with what it can show.

import { button, fill, h, withCode } from "./element.js";

const MOST_SHOWN = 5;

/** Words for something that cannot be shown, in its place. */
export const faultText = (error) => `This cannot be shown: ${error.message ?? error}`;

/** Shows below `place` whatever code of the page raises and nothing else handles. */
export function watchFaults(place) {
  const counts = new Map();
  const list = h("ul", null);
  const box = h("section", { class: "alert", role: "alert", hidden: true },
    h("p", null, withCode("A part of this page failed; what else it shows goes on, and no run is touched by it. Reload the page. If it"
      + " fails again, upgrade the gateway, or read the run with `cadre show RUN`, and report these words:")),
    list, button("Hide", () => {
      counts.clear();
      box.hidden = true;
    }, { class: "quiet" }));
  place.after(box);

  function add(error) {
    const words = String(error?.message ?? error ?? "unknown");
    counts.set(words, (counts.get(words) ?? 0) + 1);
    const shown = [...counts].slice(0, MOST_SHOWN).map(([text, times]) => h("li", null, times > 1 ? `${text} (${times} times)` : text));
    fill(list, shown, counts.size > MOST_SHOWN && h("li", null, `${counts.size - MOST_SHOWN} others`));
    box.hidden = false;
  }

  window.addEventListener("error", (event) => add(event.error ?? event.message));
  window.addEventListener("unhandledrejection", (event) => add(event.reason));
}
