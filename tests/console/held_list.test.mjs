import assert from "node:assert/strict";
import { test } from "node:test";

import { HeldList } from "../../services/cadre_gateway/console/web/state/held_list.js";

const runs = (...ids) => ids.map((id) => ({ id }));
const ids = (list) => list.map(({ id }) => id);

test("what is new waits while somebody reads, and what is shown is brought up to date in its place", () => {
  const list = new HeldList();
  list.take(runs("c", "b", "a"), true);
  assert.deepEqual(ids(list.shown), ["c", "b", "a"]);
  list.take([...runs("e", "d"), { id: "c", state: "success" }, ...runs("b", "a")], true);
  assert.deepEqual([ids(list.shown), ids(list.waiting), list.shown[0].state], [["c", "b", "a"], ["e", "d"], "success"]);
  assert.equal(list.limit(2), 5);
  list.take(runs("e", "d", "c", "b", "a"), false);
  assert.deepEqual([ids(list.shown), list.waiting], [["e", "d", "c", "b", "a"], []]);
});

test("what has left the list stays and is marked; what follows below is not new", () => {
  const list = new HeldList();
  list.take(runs("c", "b", "a"), true);
  list.take(runs("c", "a", "older"), true);
  assert.deepEqual([list.shown, list.waiting], [[{ id: "c" }, { id: "b", gone: true }, { id: "a" }], []]);
  list.take(runs("x", "y"), true);
  assert.deepEqual(ids(list.waiting), ["x", "y"]);
});
