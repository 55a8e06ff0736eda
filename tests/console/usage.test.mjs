import assert from "node:assert/strict";
import { test } from "node:test";

import { columns, seriesOf, valuesOf } from "../../services/cadre_gateway/console/web/state/usage.js";

const NOW = Date.UTC(2026, 10, 22, 14, 30) / 1000;

test("columns end with the hour or the day of now, and have the names that the gateway gives them", () => {
  const minutes = columns("hour", NOW + 7);
  assert.deepEqual([minutes.length, minutes.at(-1).key, minutes[0].key], [60, "2026-11-22T14:30Z", "2026-11-22T13:31Z"]);
  const hours = columns("day", NOW);
  assert.deepEqual([hours.length, hours.at(-1).key, hours[0].key], [24, "2026-11-22T14:00Z", "2026-11-21T15:00Z"]);
  assert.equal(hours.at(-1).end - hours.at(-1).begin, 3600);
  const days = columns("month", NOW);
  assert.deepEqual([days.length, days.at(-1).key, days[0].key], [30, "2026-11-22", "2026-10-24"]);
});

test("a column without a row has no value", () => {
  const cols = columns("week", NOW);
  assert.deepEqual(valuesOf([{ day: "2026-11-22", runs: 3 }], "day", cols, "runs").slice(-2), [null, 3]);
});

test("the largest have a series each, the others one together, and what is no agent's or model's is left out", () => {
  const cols = columns("week", NOW);
  const rows = [1, 2, 3, 4, 5, 6, 7].map((cost) => ({ day: "2026-11-22", model: `m${cost}`, cost }));
  const found = seriesOf([...rows, { day: "2026-11-22", model: "", cost: 99 }], "day", "model", cols, (row) => row.cost);
  assert.deepEqual(found.map(({ name, values }) => [name, values.at(-1)]), [["m7", 7], ["m6", 6], ["m5", 5], ["m4", 4], ["m3", 3], ["2 others", 3]]);
});
