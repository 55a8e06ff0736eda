// Talks with agents by clients of OpenAI's API for Node.js: a case, the URL of the API.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled } from "@openai/agents";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI, { NotFoundError, toFile } from "openai";
import { z } from "zod";

const [name, baseURL] = process.argv.slice(2);
const Person = z.object({ name: z.string(), age: z.number() });
const degrees = { Oslo: "3 degrees", Rome: "21 degrees" };

const cases = {
  async openai() {
    const client = new OpenAI({ baseURL, apiKey: "any" });
    const chat = await client.chat.completions.create({ model: "host", messages: [{ role: "user", content: "Good day" }] });
    const stream = client.responses.stream({ model: "host", input: "Good evening" });
    const streamed = (await stream.finalResponse()).output_text;
    const talk = await client.conversations.create({ metadata: { topic: "names" } });
    await client.responses.create({ model: "host", input: "my name is Iris", conversation: talk.id });
    const recalled = await client.responses.create({ model: "host", input: "what is my name?", conversation: talk.id });
    const items = [];
    for await (const item of client.conversations.items.list(talk.id, { limit: 3 })) items.push(item.type);
    const file = await client.files.create({ file: await toFile(Buffer.from("text"), "a.txt"), purpose: "user_data" });
    const content = await (await client.files.content(file.id)).text();
    await client.files.delete(file.id);
    const gone = await client.files.retrieve(file.id).then(
      () => false,
      (error) => error instanceof NotFoundError,
    );
    return [chat.choices[0].message.content, streamed, recalled.output_text, items.length, content, gone];
  },

  async "openai-agents"() {
    setTracingDisabled(true);
    const client = new OpenAI({ baseURL, apiKey: "any" });
    const told = [];
    for (const Model of [OpenAIChatCompletionsModel, OpenAIResponsesModel]) {
      const clerk = new Agent({ name: "clerk", model: new Model(client, "clerk") });
      const front = new Agent({ name: "front", model: new Model(client, "host"), handoffs: [clerk] });
      const result = await run(front, "hand over");
      told.push([result.lastAgent.name, result.finalOutput.includes("has read")]);
    }
    return told;
  },

  async "ai-sdk"() {
    const openai = createOpenAI({ baseURL, apiKey: "any" });
    const compatible = createOpenAICompatible({ name: "cadre", baseURL, apiKey: "any" });
    const weather = tool({
      description: "Tell the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => degrees[city],
    });
    const told = [];
    for (const model of [openai.chat("host"), openai.responses("host"), compatible("host")]) {
      const plain = await generateText({ model, prompt: "Good day" });
      const asked = await generateText({ model, prompt: "the weathers", tools: { weather }, stopWhen: stepCountIs(3) });
      const formed = await generateText({ model, prompt: "Ann as JSON", output: Output.object({ schema: Person }) });
      const stream = streamText({ model, prompt: "Good evening" });
      told.push([plain.text, asked.text, formed.output, await stream.text]);
    }
    return told;
  },
};

console.log(JSON.stringify(await cases[name]()));
