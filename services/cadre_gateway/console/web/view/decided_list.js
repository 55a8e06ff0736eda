// Calls that were decided: who decided what, when, and what they changed.

import { writeJson } from "../exact_json.js";
import { callPath, get } from "../http/api.js";
import { showDecided } from "./changes.js";
import { badge, button, empty, fill, h, table, withCode } from "./element.js";
import { argumentsText, brief, clock, duration } from "./format.js";

const MARKS = { approved: "ok", corrected: "held", rejected: "failed", expired: "dropped" };

/** The list in `body`; `show` takes a page of the API. */
export function decidedList(body) {
  let shown = "";
  return {
    show({ approvals, next }) {
      const signature = writeJson(approvals);
      if (signature === shown) return;
      shown = signature;
      fill(body,
        approvals.length ? table(["When", "Decision", "By", "Call", "Task"], approvals.map(cells)) : empty("Nobody has decided on a call yet."),
        next && h("p", { class: "empty" }, "Older ones stand in their runs."));
    },
  };
}

function cells(approval) {
  const { decision } = approval;
  return [
    h("span", { class: "nowrap", title: `${duration(decision.at - approval.requested_at)} after it was asked` }, clock(decision.at)),
    badge(MARKS[decision.verdict] ?? "open", decision.verdict),
    decision.by,
    [
      h("div", { title: argumentsText(approval.arguments, 300) }, h("strong", null, withCode(brief(approval.headline, 160)))),
      decision.feedback && h("div", { class: "hint" }, withCode(decision.feedback)),
      approval.cut ? whole(approval) : showDecided(approval, decision),
    ],
    h("a", { href: `#/run/${encodeURIComponent(approval.tree)}` }, withCode(brief(approval.task, 80) || approval.tree)),
  ];
}

/** Long arguments are asked for when somebody wants to see them. */
function whole(approval) {
  const box = h("div", null);
  const ask = button("Show what was changed", async () => {
    const found = await get(callPath(approval.call));
    fill(box, showDecided(found, found.decision) ?? h("p", null, "Nothing was changed."));
  }, { class: "quiet" });
  return fill(box, ask);
}
