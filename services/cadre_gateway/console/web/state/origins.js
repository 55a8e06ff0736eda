// Where the values of a call first stood, as the run's policies have found: in the task, in a stranger's text, nowhere.

const WORDS = {
  task: "in the task", listed: "in a list of known values", trusted: "in a field that its tool vouches for",
  sole: "the only address in a text that the task names", field: "in a result", named: "in a text that the task names",
  text: "in a text that was read", nowhere: "in nothing that was read",
};
const KNOWN = new Set(["task", "listed", "trusted", "sole"]);

/** The arguments of a call, each with the words for its origin, and the place with the address of the call that brought it. */
export function originsOf(origins) {
  return Object.entries(origins ?? {}).map(([argument, [origin, call, place]]) => ({
    argument, origin, words: WORDS[origin] ?? origin, isKnown: KNOWN.has(origin), place: place ?? "", href: call ? addressOf(call) : "",
  }));
}

function addressOf(call) {
  const query = new URLSearchParams({ at: `call:${call}` });
  return `#/run/${encodeURIComponent(call.split("_")[0])}?${query}`;
}
