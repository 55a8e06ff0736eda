// The axis and window of a waterfall, and the rows that one jumps to.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyTree, spentOf, takeEvents } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { allRows, dearestBelow, longestChild, matches, nextError, panned, ticks, zoomed } from "../../services/cadre_gateway/console/web/state/waterfall.js";
import { call, model, rows, run, step } from "./story.mjs";

const words = (span, origin, pixels) => ticks(span, origin, pixels).map((one) => one.words);

test("an axis has round times, as many as fit", () => {
  assert.deepEqual(words({ begin: 100, end: 110 }, 100, 500), ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s", "7 s", "8 s", "9 s", "10 s"].filter((_, at) => at % 1 === 0));
  assert.deepEqual(words({ begin: 100, end: 110 }, 100, 100), ["0 s", "5 s", "10 s"]);
  assert.deepEqual(words({ begin: 0, end: 300 }, 0, 300), ["0:00", "1:00", "2:00", "3:00", "4:00", "5:00"]);
  assert.deepEqual(words({ begin: 225.2, end: 225.5 }, 100, 300), ["2:05.2", "2:05.3", "2:05.4", "2:05.5"].filter((one) => one));
  assert.deepEqual(ticks({ begin: 0, end: 10 }, 0, 0), []);
  assert.deepEqual(ticks({ begin: 5, end: 5 }, 0, 100), []);
});

test("labels of an axis never collide, whatever it is wide and long", () => {
  for (const wide of [0.0015, 0.02, 0.7, 3, 59.9, 60.1, 777, 3599, 4000, 90_000, 5e6]) {
    for (const pixels of [30, 53, 120, 300, 901]) {
      for (const begin of [0, 0.3333, 59, 3601.7]) {
        const marks = ticks({ begin: 1000 + begin, end: 1000 + begin + wide }, 1000, pixels);
        marks.forEach(({ part }, at) => {
          if (at === 0) return;
          const room = (part - marks[at - 1].part) * pixels;
          assert.ok(room >= marks[at - 1].words.length * 6.5, `${wide} ${pixels} ${begin}: ${marks.map((one) => one.words)}`);
        });
        assert.equal(new Set(marks.map((one) => one.words)).size, marks.length, "each label is another time");
      }
    }
  }
});

test("a window is zoomed about a time and never leaves the whole", () => {
  const whole = { begin: 0, end: 100 };
  assert.deepEqual(zoomed(whole, whole, 0.5), { begin: 25, end: 75 });
  assert.deepEqual(zoomed(whole, whole, 0.5, 10), { begin: 5, end: 55 });
  assert.deepEqual(zoomed({ begin: 80, end: 100 }, whole, 2, 100), { begin: 60, end: 100 });
  assert.deepEqual(zoomed({ begin: 10, end: 80 }, whole, 2), whole);
  assert.deepEqual(panned({ begin: 0, end: 50 }, whole, -0.5), { begin: 0, end: 50 });
  assert.deepEqual(panned({ begin: 0, end: 50 }, whole, 0.5), { begin: 25, end: 75 });
  assert.deepEqual(panned({ begin: 40, end: 90 }, whole, 0.5), { begin: 50, end: 100 });
});

function story() {
  const tree = emptyTree("a1");
  takeEvents(tree, [
    rows(run("a1", { state: "failed", ended_at: 60 }), step("a1", 1, { state: "failed", ended_at: 9 }), call("a1", 1, 0, { state: "failed", ended_at: 9, error: "No such order" }),
      step("a1", 2, { state: "ok", asked_at: 10, ended_at: 50 }), call("a1", 2, 0, { asked_at: 10, state: "ok", ended_at: 40, brief: "order=17" })),
    rows(run("a1_2_0", { asked_at: 11, began_at: 30, state: "ok", ended_at: 40 }), step("a1_2_0", 1, { state: "failed", asked_at: 30, ended_at: 39 })),
  ]);
  return allRows(tree);
}

test("errors are gone through by their causes, from the first again", () => {
  const found = story();
  assert.equal(nextError(found, "run:a1"), "call:a1_1_0");
  assert.equal(nextError(found, "call:a1_1_0"), "step:a1_2_0:1");
  assert.equal(nextError(found, "step:a1_2_0:1"), "call:a1_1_0");
  assert.equal(nextError([], "run:a1"), undefined);
});

test("what was spent counts for all rows above, and the dearest row is found at once", () => {
  const usage = (cost) => ({ input_tokens: cost * 1000, output_tokens: 0, cost, model_calls: 1 });
  const tree = emptyTree("a1");
  takeEvents(tree, [
    rows(run("a1", { usage: usage(2) }), step("a1", 1), model("a1", 1, { usage: usage(2), ended_at: 2 }), call("a1", 1, 0), call("a1", 1, 1), step("a1", 2)),
    rows(run("a1_1_0", { usage: usage(1) }), step("a1_1_0", 1), model("a1_1_0", 1, { usage: usage(1), ended_at: 2 })),
    rows(run("a1_1_1", { usage: usage(7) }), step("a1_1_1", 1), step("a1_1_1", 2), model("a1_1_1", 1, { usage: usage(4), ended_at: 2 }), model("a1_1_1", 2, { usage: usage(3), ended_at: 2 })),
  ]);
  const spent = (key) => spentOf(tree, key).cost;
  assert.deepEqual(["run:a1", "step:a1:1", "step:a1:2", "call:a1_1_1", "run:a1_1_1", "step:a1_1_1:2", "model:a1:10.1"].map(spent), [10, 10, 0, 7, 7, 3, 2]);
  assert.equal(spentOf(tree, "run:a1").tokens, 10_000);
  assert.equal(dearestBelow(allRows(tree), "run:a1", spent), "run:a1_1_1", "no row below it has half of the whole");
  assert.equal(dearestBelow(allRows(tree), "run:a1_1_1", spent), "model:a1_1_1:10.1");
  assert.equal(dearestBelow(allRows(tree), "step:a1:2", spent), undefined);
  takeEvents(tree, [rows(run("a1_1_0", { usage: usage(9) }))]);
  assert.deepEqual([spent("run:a1"), dearestBelow(allRows(tree), "run:a1", spent)], [18, "run:a1_1_0"]);
});

test("the longest child is counted from when it was asked for", () => {
  const found = story();
  assert.equal(longestChild(found, "run:a1", 60), "step:a1:2");
  assert.equal(longestChild(found, "step:a1:2", 60), "run:a1_2_0");
  assert.equal(longestChild(found, "call:a1_1_0", 60), undefined);
  assert.equal(longestChild(found, "nowhere", 60), undefined);
});

test("rows are found by all words of what they say", () => {
  const found = story();
  assert.deepEqual(matches(found, "ORDER such"), ["call:a1_1_0"]);
  assert.deepEqual(matches(found, "order=17"), ["run:a1_2_0"]);
  assert.deepEqual(matches(found, " "), []);
});
