// A held call, and what a person makes of it: approve, correct, reject, or answer a question.

import { callPath, get, post } from "../http/api.js";
import { argumentForm } from "./argument_form.js";
import { showChanges, showDecided } from "./changes.js";
import { alert, field, fill, h, toast, withCode } from "./element.js";
import { clock, relative } from "./format.js";
import { showOrigins } from "./origins.js";
import { proposalForm } from "./proposal_form.js";
import { showValue } from "./value.js";

/**
 * The form of one call; `known` is what its list has of it. `onDecided` is called when it is decided. `element`;
 * `decide(verdict, feedback)`, which decides with what the form says by now and returns the outcome (raises Error);
 * and `press(verdict)`, which does what the form's button does.
 */
export function decisionForm(call, known, onDecided) {
  const box = h("section", { class: "decision", "aria-label": `Decide on ${known?.name ?? "the call"}` }, h("p", null, "Loading …"));
  let send = null;
  const pressed = {}; // buttons by verdict
  const isInCard = known?.headline !== undefined; // the list shows it around the form
  const loaded = load();
  return {
    element: box,
    async decide(verdict, feedback) {
      await loaded;
      if (!send) throw new Error(box.textContent);
      return send(verdict, feedback);
    },
    press: (verdict) => pressed[verdict]?.click(),
  };

  async function load() {
    try {
      draw(known && !known.cut && known.schema !== undefined && known.state === "pending" ? known : await get(callPath(call)));
    } catch (error) {
      fill(box, alert(error.message));
    }
  }

  function draw(approval) {
    if (approval.state !== "pending") {
      const { decision } = approval;
      fill(box, h("p", null, decision ? `${decision.verdict} by ${decision.by}${decision.at ? `, ${clock(decision.at)}` : ""}` : "given up: its run ended first"),
        decision && showDecided(approval, decision));
      return;
    }
    const question = approval.kind === "question";
    const calls = question && Array.isArray(approval.arguments.calls) ? approval.arguments.calls : [];
    const form = calls.length ? proposalForm(calls) : argumentForm(approval.arguments, approval.schema);
    const changes = calls.length ? () => form.edits().length > 0 : () => !question && form.changed();
    const feedback = h("textarea", { rows: 2, name: "feedback" });
    const problem = h("div", null);
    const changed = h("div", { role: "status" });
    send = async (verdict, words) => {
      const body = { verdict };
      const text = feedback.value.trim() || words;
      if (text) body.feedback = text;
      try {
        if (verdict === "approved" && changes()) Object.assign(body, calls.length ? { edits: form.edits() } : { verdict: "corrected", arguments: form.read(), replace: true });
        lock(true);
        const answer = await post(callPath(call), body);
        fill(box, h("p", null, `${answer.verdict} by ${answer.by}`), showDecided(approval, answer));
        onDecided?.(answer);
        return `${answer.verdict}${answer.at ? "" : ", kept until its agent is back"}`;
      } catch (error) {
        fill(problem, alert(error.message));
        if (["already-decided", "approval-expired", "approval-dropped", "run-ended"].includes(error.code)) onDecided?.(null);
        throw error;
      } finally {
        lock(false);
      }
    };
    const decide = async (verdict) => {
      try {
        toast(`${approval.name || "Question"}: ${await send(verdict, "")}`);
      } catch {
        // The form tells it.
      }
    };
    const approveText = question && !calls.length ? "Yes" : "Approve";
    const buttons = [
      h("button", { type: "button", class: "primary", onclick: () => decide("approved") }, approveText),
      h("button", { type: "button", class: "danger", onclick: () => decide("rejected") }, question && !calls.length ? "No" : "Reject"),
    ];
    [pressed.approved, pressed.rejected] = buttons;
    const lock = (locked) => buttons.forEach((one) => { one.disabled = locked; });
    const watchChange = () => {
      let differs = true;
      try {
        differs = changes();
        fill(changed, !calls.length && differs && showChanges(approval.arguments, form.read()));
      } catch {
        // Not JSON yet.
      }
      buttons[0].textContent = differs ? "Approve with changes" : approveText;
    };
    box.addEventListener("input", watchChange);
    fill(box,
      !isInCard && h("p", { class: "headline" }, withCode(approval.headline)),
      (approval.rule || approval.reason !== approval.headline) && h("p", { class: "reason" }, h("strong", null, approval.rule ? `Rule ${approval.rule}: ` : "Held: "), withCode(approval.reason)),
      approval.decided_by?.length > 0 && h("p", { class: "hint" }, `For ${approval.decided_by.join(", ")} to decide`),
      showOrigins(approval.origins),
      !isInCard && approval.expires_at && h("p", { class: "expires" }, `Counts as rejected ${relative(approval.expires_at)} (${clock(approval.expires_at)})`),
      calls.length > 0 && approval.arguments.output != null && [h("h4", null, "Output so far"), showValue(approval.arguments.output)],
      question && !calls.length ? Object.keys(approval.arguments).length > 0 && showValue(approval.arguments) : form.element,
      field(question && !calls.length ? "Answer or remark" : "Feedback for the model", feedback),
      changed, problem, h("div", { class: "actions" }, buttons));
  }
}
