// Events are followed across lost connections, and what the page cannot take in ends nothing.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { followRun } from "../../services/cadre_gateway/console/web/http/follow.js";
import { emptyTree, faultLines, rootOf, takeEvents } from "../../services/cadre_gateway/console/web/state/run_tree.js";
import { rows, run, step } from "./story.mjs";
import { openPage } from "./page.mjs";

const { page, faults } = openPage();
let answers = []; // of the server, one for each request
let asks = [];
const server = createServer((request, response) => {
  asks.push(request.url);
  (answers.shift() ?? ((_, one) => one.writeHead(503).end()))(request, response);
});

before(() => new Promise((resolve) => server.listen(0, "127.0.0.1", resolve)));
after(() => {
  server.closeAllConnections();
  server.close();
});

const frame = ({ name, data }, id) => `event: ${name}\n${id ? `id: ${id}\n` : ""}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
const END = frame({ name: "end", data: { run: "r", state: "success" } });
const stream = (...frames) => (_, response) => response.writeHead(200, { "Content-Type": "text/event-stream" }).end(frames.join(""));

/** Follows the stream to its end and returns what it reported. `takes` gets the events. */
function followed(takes, ...told) {
  answers = told;
  asks = [];
  faults.length = 0;
  return new Promise((resolve) => {
    const links = [];
    let stop = null;
    const done = (refused) => setImmediate(() => {
      stop();
      resolve({ links, refused });
    });
    stop = followRun(`http://127.0.0.1:${server.address().port}/v1/runs/r`, {
      onEvents: takes,
      onLink: (state, about) => {
        links.push(state === "lost" ? [state, about.reason, about.seconds] : state);
        if (state === "ended") done(null);
      },
      onRefused: done,
    });
  });
}

test("a page that fails is told of the events behind, and nothing is asked for again", async () => {
  const names = [];
  const { links } = await followed((events) => {
    names.push(...events.map((one) => one.name));
    throw new Error("the page has a mistake");
  }, stream(frame(rows(run("r")), 1), frame(rows(step("r", 1)), 2), END));
  assert.deepEqual(names, ["rows", "rows", "end"]);
  assert.deepEqual([links, asks.length], [["live", "ended"], 1]);
  assert.deepEqual([...new Set(faults)], ["the page has a mistake"]);
});

test("an event that cannot be read is reported, and the others are shown", async () => {
  const tree = emptyTree("r");
  await followed((events) => takeEvents(tree, events),
    stream(frame(rows(run("r")), 1), frame({ name: "rows", data: "{\"rows\": oops" }, 3), frame(rows(run("r", { state: "ok", ended_at: 6 })), 6), END));
  assert.deepEqual([tree.faults.length, rootOf(tree).state, asks.length], [1, "ok", 1]);
  assert.deepEqual([faultLines(tree).length, faultLines(emptyTree("r")).length], [1, 0]);
});

test("a stream that ends again and again is asked for after longer and longer pauses, and why is told", async () => {
  const { links } = await followed(() => {}, stream(), stream(), (_, response) => response.writeHead(503, { "Content-Type": "application/json" }).end('{"detail":"NATS is away"}'), stream(END));
  const lost = links.filter(Array.isArray);
  assert.deepEqual(lost.map(([, , seconds]) => seconds), [0.5, 1, 2]);
  assert.equal(lost[2][1], "NATS is away");
  assert.equal(asks.length, 4);
});

test("after news the pause is short, and only what is behind them is asked for", async () => {
  const { links } = await followed(() => {}, stream(), stream(frame(rows(run("r")), 7)), stream(END));
  assert.deepEqual(links.filter(Array.isArray).map(([, , seconds]) => seconds), [0.5, 0.5]);
  assert.deepEqual(asks.map((url) => new URL(url, "http://x").searchParams.get("after")), [null, null, "7"]);
});

test("a refusal ends it; one for want of a key asks for it", async () => {
  let signIns = 0;
  page.addEventListener("cadre-unauthorized", () => { signIns += 1; });
  const { refused } = await followed(() => {}, (_, one) => one.writeHead(401).end(), (_, one) => one.writeHead(403).end('{"code":"forbidden","detail":"no"}'));
  assert.deepEqual([signIns, refused.status, refused.code, asks.length], [1, 403, "forbidden", 2]);
});
