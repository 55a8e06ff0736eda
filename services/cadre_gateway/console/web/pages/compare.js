// Two runs side by side: what they were asked, what they did and what it cost, with the differences marked.

import { same } from "../exact_json.js";
import { get, runPath, withQuery } from "../http/api.js";
import { followRun } from "../http/follow.js";
import { compareTrees } from "../state/comparison.js";
import { emptyTree, faultLines, isOver, rootOf, rowsBelow, takeEvents } from "../state/run_tree.js";
import { alert, badge, dialog, field, fill, h } from "../view/element.js";
import { brief, clock, cost, count, duration } from "../view/format.js";
import { showAnswer, showValue } from "../view/value.js";

const OFFERED_RUNS = 30;
const NUMBERS = { Steps: count, Runs: count, "Model calls": count, "Tokens in": count, "Tokens out": count, Cost: cost, Seconds: duration };

/** Shows the page of two runs; returns what ends it. */
export function comparePage(main, { parts: [left, right] }) {
  const trees = [left, right].map(emptyTree);
  const runs = [null, null]; // with their steps, as they were when as many had ended as `known` says
  const known = ["", ""];
  const problem = h("div", null);
  const faults = h("div", null);
  const facts = h("div", null);
  const steps = h("div", { class: "steps" });
  const onlyDiffering = h("input", { type: "checkbox", onchange: schedule });
  let frame = null;
  fill(main, h("h1", null, "Two runs"), h("form", { class: "bar" }, field("Only differences", onlyDiffering)), problem, faults, facts, h("h2", null, "Steps"), steps);
  const stops = [left, right].map((id, side) => followRun(runPath(id), {
    onEvents: (events) => {
      takeEvents(trees[side], events);
      schedule();
      load(id, side);
    },
    onLink: () => {},
    onRefused: (error) => problem.append(alert(`${id}: ${error.message}`)),
  }));

  /** Asks for the steps of a run once another one of them has ended. */
  async function load(id, side) {
    const root = rootOf(trees[side]);
    if (!root) return;
    const now = `${rowsBelow(trees[side], root.key).filter(isOver).length} ${isOver(root)}`;
    if (known[side] === now) return;
    known[side] = now;
    try {
      const run = await get(withQuery(runPath(id), { full: true }));
      if (known[side] !== now) return;
      runs[side] = run;
      schedule();
    } catch (error) {
      problem.append(alert(`${id}: ${error.message}`));
    }
  }

  function schedule() {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      draw();
    });
  }

  function draw() {
    fill(faults, trees.flatMap(faultLines).map((line) => alert(line)));
    if (runs.includes(null)) return;
    const found = compareTrees(trees, runs);
    const wanted = (one) => one.differs || !onlyDiffering.checked;
    const head = (id) => h("th", { scope: "col" }, h("a", { href: `#/run/${encodeURIComponent(id)}` }, id));
    fill(facts, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Comparison" }, h("table", { class: "compare" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Of"), head(left), head(right))),
      h("tbody", null, found.facts.filter(wanted).map(({ name, values, differs }) => h("tr", { class: differs ? "differs" : "" },
        h("th", { scope: "row" }, name, differs && badge("held", "differs")), values.map((value) => h("td", null, shown(name, value)))))))));
    fill(steps, found.steps.filter(wanted).map(({ number, sides, differs }) => h("section", { class: "compared", "aria-label": `Step ${number}` },
      h("h3", null, `Step ${number}`, " ", differs && badge("held", "differs")),
      h("div", { class: "sides" }, sides.map((side, index) => drawSide(side, sides[1 - index]))))));
  }

  draw();
  return () => {
    stops.forEach((stop) => stop());
    cancelAnimationFrame(frame);
  };
}

function shown(name, value) {
  return name in NUMBERS ? NUMBERS[name](value) || "–" : showAnswer(value);
}

/** One run's part in a step, with what the other run has not done so marked. */
function drawSide(side, other) {
  if (!side) return h("div", { class: "card empty" }, "There is no such step.");
  return h("div", { class: "card" }, side.error && alert(side.error), side.parts.map(({ what, name, text, arguments: args, result }, index) => h("div", { class: other && same(side.parts[index], other.parts[index]) ? "" : "differs" },
    h("h4", null, name ? `${what} ${name}` : what),
    text && showAnswer(text), args !== undefined && showValue(args),
    result !== undefined && result !== null && [h("h5", null, "Result"), showValue(result)],
  )));
}

/** Asks which run to set beside the run `id` of the agent, and goes there. */
export async function chooseOther(id, agent) {
  const { runs } = await get(withQuery("/v1/runs", { agent, limit: OFFERED_RUNS }));
  const others = runs.filter((run) => run.id !== id);
  dialog("Compare with another run", [
    field("Run", h("input", { name: "run", required: true, list: "other-runs", autocomplete: "off" }), `its id; the last ones of ${agent} are offered`),
    h("datalist", { id: "other-runs" }, others.map((run) => h("option", { value: run.id }, `${clock(run.started_at)} ${run.state}: ${brief(run.task, 80)}`))),
  ], "Compare", async (data) => {
    const other = data.get("run").trim();
    await get(runPath(other));
    location.hash = `#/compare/${[id, other].map(encodeURIComponent).join("/")}`;
  });
}
