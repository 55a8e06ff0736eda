// Talks with agents by the stock client of AG-UI, which checks the order of all events: the gateway's URL, a file to book in.
import { HttpAgent } from "@ag-ui/client";

const [url, books] = process.argv.slice(2);
let count = 0;

async function turn(agent, said, more = {}) {
  const seen = [];
  if (said) agent.addMessage({ id: `m${++count}`, role: "user", content: said });
  let failed = null;
  await agent.runAgent(more, {
    onEvent: ({ event }) => {
      seen.push(event);
    },
    onRunFailed: ({ error }) => {
      failed = error.message;
    },
  });
  if (failed) throw new Error(failed);
  return seen;
}

const agentOf = (name, thread) => new HttpAgent({ url: `${url}/agui/${name}`, threadId: thread });
const last = (events) => events[events.length - 1];
const told = {};

const host = agentOf("host", "thread-1");
await turn(host, "my name is Iris");
told.recalled = last(await turn(host, "what is my name")).result;
told.messages = host.messages.map((message) => message.role);

const chief = agentOf("chief", "thread-2");
const asked = await turn(chief, `have clerk: refund ${books} 500`);
const [interrupt] = last(asked).outcome.interrupts;
told.asked = { tool: interrupt.metadata.tool, amount: interrupt.metadata.arguments.amount, within: !!interrupt.subagentRunId };
told.types = [...new Set(asked.map((event) => event.type))].sort();
const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { verdict: "approved", arguments: { amount: 50 } } }];
told.answer = last(await turn(chief, null, { resume })).result;

const guest = agentOf("host", "thread-3");
const tools = [
  {
    name: "weather",
    description: "Tell the weather.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const pending = await turn(guest, "weather in Oslo", { tools });
told.pending = last(pending).outcome;
const call = pending.find((event) => event.type === "TOOL_CALL_START");
guest.addMessage({ id: "t1", role: "tool", toolCallId: call.toolCallId, content: "3 degrees" });
told.weather = last(await turn(guest, null, { tools })).result;

const reader = agentOf("host", "thread-4");
const story = await turn(reader, "tell a broken story");
told.pieces = story.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").length > 1;
await turn(reader, "tell another story");
await turn(reader, "tell it and ask", { tools });
told.stories = reader.messages.map((message) => message.content ?? message.toolCalls.length);

console.log(JSON.stringify(told));
