// Calls the gateway by types that openapi-typescript has made, with openapi-fetch: its URL, a key, a call that waits;
// prints as JSON what it was told.

import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const [url, key, call] = process.argv.slice(2);
const anybody = createClient<paths>({ baseUrl: url });
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

/** The answer of a call that must succeed. */
function found<T>({ data, error }: { data?: T; error?: { code: string } }): T {
  if (data === undefined) throw new Error(`refused: ${error?.code}`);
  return data;
}

const ways = found(await anybody.GET("/v1/sign-in"));
const refused = await anybody.GET("/v1/session");
const session = found(await client.GET("/v1/session"));
const made = found(await client.POST("/v1/keys", { body: { name: "a reader", roles: ["viewer"] } }));
const revoked = found(await client.DELETE("/v1/keys/{id}", { params: { path: { id: made.id } } }));
const agents = found(await client.GET("/v1/agents"));
const tools = found(await client.GET("/v1/tools"));
const asked = found(await client.GET("/v1/approvals"));
const decided = found(
  await client.POST("/v1/approvals/{call}", { params: { path: { call } }, body: { verdict: "rejected", feedback: "No." } }),
);
const ended = found(
  await client.POST("/v1/runs", { params: { header: { prefer: "wait=60" } }, body: { agent: "host", task: "Hi" } }),
);
if (typeof ended === "string" || !("output" in ended)) throw new Error("the run has not ended");
const run = found(await client.GET("/v1/runs/{run}", { params: { path: { run: ended.id } } }));
const runs = found(await client.GET("/v1/runs", { params: { query: { agent: "host", limit: 5 } } }));
const nightly = { params: { path: { name: "nightly" } } };
found(
  await client.PUT("/v1/schedules/{name}", {
    ...nightly,
    body: { name: "nightly", agent: "host", task: "Hi", cron: "0 3 * * *", paused: true },
  }),
);
const schedule = found(await client.GET("/v1/schedules/{name}", nightly));
const gone = await client.DELETE("/v1/schedules/{name}", nightly);
const unknown = await client.GET("/v1/runs/{run}", { params: { path: { run: "0".repeat(32) } } });

console.log(
  JSON.stringify({
    keys: ways.keys,
    refused: [refused.response.status, refused.error?.code],
    name: session.name,
    revoked: revoked.id === made.id,
    agents: agents.agents.map((one) => one.name).sort(),
    tools: tools.tools.map((one) => one.name).sort(),
    asked: asked.approvals.map((one) => one.call),
    verdict: decided.verdict,
    output: ended.output,
    state: run.state,
    runs: runs.runs.length === 1 && runs.runs[0].id === ended.id,
    schedule: [schedule.name, schedule.paused],
    gone: gone.response.status,
    unknown: unknown.error?.code,
  }),
);
