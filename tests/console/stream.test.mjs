import assert from "node:assert/strict";
import { test } from "node:test";

import { readEvent, SseParser } from "../../services/cadre_gateway/console/web/http/sse.js";
import { argumentsText, brief, bytes, cost, count, duration } from "../../services/cadre_gateway/console/web/view/format.js";

const STREAM = 'retry: 1000\n\n: ping\n\nevent: run.accepted\ndata: {"seq":1}\n\nevent: model.called\nid: 7\ndata: {"seq":\ndata: 1}\n\n';

test("events are read wherever the stream is cut into pieces", () => {
  for (let cut = 1; cut < STREAM.length; cut += 1) {
    const parser = new SseParser();
    const events = [...parser.push(STREAM.slice(0, cut)), ...parser.push(STREAM.slice(cut))];
    assert.deepEqual(events, [
      { name: "run.accepted", id: null, data: '{"seq":1}' },
      { name: "model.called", id: "7", data: '{"seq":\n1}' },
    ]);
  }
});

test("data that is no JSON is a fault of its event", () => {
  assert.deepEqual(readEvent({ name: "delta", id: null, data: '{"text":"x"}' }), { name: "delta", data: { text: "x" } });
  assert.ok(readEvent({ name: "rows", id: "7", data: "{" }).fault instanceof SyntaxError);
});

test("numbers are written as people read them", () => {
  assert.deepEqual([0.0123, 0.42, 12.4, 185, 7800, 90_000].map(duration), ["12 ms", "0.4 s", "12 s", "3 min 5 s", "2 h 10 min", "1 d 1 h"]);
  assert.deepEqual([0, 9999, 12_345, 4_500_000].map(count), ["0", "9999", "12.3k", "4.5M"]);
  assert.deepEqual([0, 0.00123, 1.5].map(cost), ["", "0.0012", "1.50"]);
  assert.deepEqual([12, 1500, 2_500_000].map(bytes), ["12 B", "1.5 kB", "2.5 MB"]);
  assert.equal(brief("a\n  b", 10), "a b");
  assert.equal(brief("abcdef", 4), "abc…");
  assert.equal(argumentsText({ city: "Bern", days: 3 }), 'city="Bern", days=3');
});
