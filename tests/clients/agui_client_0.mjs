// Talks with agents by the client of AG-UI that CopilotKit uses, from before version 1: the gateway's URL, a file to book in.
import { HttpAgent } from "@ag-ui/client-0";

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
const answer = (agent) => agent.messages[agent.messages.length - 1].content;
const told = {};

const host = agentOf("host", "old-1");
await turn(host, "my name is Iris");
await turn(host, "what is my name");
told.recalled = answer(host);

const chief = agentOf("chief", "old-2");
await turn(chief, `have clerk: refund ${books} 50`);
told.member = answer(chief);
told.waits = (await turn(chief, `have clerk: refund ${books} 500`)).map((event) => event.type).pop();

const guest = agentOf("host", "old-3");
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "Tell the weather.", parameters }];
const pending = await turn(guest, "weather in Oslo", { tools });
const call = pending.find((event) => event.type === "TOOL_CALL_START");
guest.addMessage({ id: "t1", role: "tool", toolCallId: call.toolCallId, content: "3 degrees" });
await turn(guest, null, { tools });
told.weather = answer(guest);

console.log(JSON.stringify(told));
