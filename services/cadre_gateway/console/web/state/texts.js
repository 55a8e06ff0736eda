// What the pages say of a run in words. Pure.

/** Words for an error of a run, a step or a call; empty without one. */
export function errorText(error) {
  if (!error) return "";
  // What repeats the call is left out: its name and arguments are shown anyway.
  const message = [...(error.message ?? "")].slice(error.preamble ?? 0).join("");
  return OF_CALLS.has(error.code) ? message : `${error.type}: ${message}`;
}

const OF_CALLS = new Set(["tool-failed", "member-failed", "timed-out", "invalid-call"]);

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
