// What the pages say of a run in words. Pure.

/** Words for an error of a run, a step or a call; empty without one. */
export function errorText(error) {
  if (!error) return "";
  const ofCall = error.type === "AgentToolExecutionError" || error.type === "AgentToolCallError";
  return ofCall ? withoutCall(error.message ?? "") : `${error.type}: ${error.message}`;
}

/** The message without the tool's name and arguments, which stand beside it anyway. */
function withoutCall(message) {
  const head = /^(Error executing tool|Invalid call of tool) \S+ with arguments \{/.exec(message);
  if (!head) return message;
  let depth = 1;
  for (let at = head[0].length; at < message.length; at += 1) {
    if (message[at] === '"') at = endOfString(message, at);
    else if (message[at] === "{") depth += 1;
    else if (message[at] === "}") depth -= 1;
    if (depth === 0) return message.slice(at + 1).replace(/^: /, "");
  }
  return message; // long arguments are cut
}

function endOfString(text, from) {
  let at = from + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at;
}

const PURPOSES = {
  plan: "planning", act: "thinking", summarize: "summarizing", make_plan: "making a plan", replan: "planning anew",
  conclude: "writing the answer", final: "writing the answer",
};

/** What a run does while its model is asked for this purpose. */
export const purposeText = (purpose) => PURPOSES[purpose] ?? (purpose || "thinking").replaceAll("_", " ");

/** What a person, or the clock, made of a held call, in words. */
export function decisionText(decision) {
  if (!decision) return "";
  if (decision.verdict === "expired") return "nobody decided in time";
  return `${decision.verdict} by ${decision.by || "somebody"}${decision.feedback ? `: ${decision.feedback}` : ""}`;
}

/** What to do about events of a run that cannot be shown; no line where all can. */
export function faultLines({ faults }, run) {
  if (!faults.length) return [];
  const [{ name, message }] = faults;
  const events = faults.length === 1 ? "An event" : `${faults.length} events`;
  return [`${events} of this run cannot be shown (${name}: ${message}), so something may be missing here; the run itself goes on. `
    + `Reload the page. If that does not help, upgrade the gateway, or read the run with \`cadre show ${run}\`.`];
}
