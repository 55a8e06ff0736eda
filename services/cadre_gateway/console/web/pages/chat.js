// A session as a conversation: its turns, an answer while it is written, and what waits for a person in place.

import { get, post, runPath, withQuery } from "../http/api.js";
import { followRun } from "../http/follow.js";
import { emptyTree, isOver, rootOf, takeEvents } from "../state/run_tree.js";
import { heldCalls, writing } from "../state/turn.js";
import { decisionForm } from "../view/decision_form.js";
import { alert, badge, button, empty, field, fill, h, toast, withCode } from "../view/element.js";
import { errorText, lostText } from "../view/format.js";
import { showAnswer } from "../view/value.js";

const TURNS = 20;

/** Shows the page; returns what ends it. */
export function chatPage(main, { query, setQuery }) {
  let agent = query.get("agent") ?? "";
  let session = query.get("session") ?? "";
  let stop = null; // of the turn that goes on
  let over = false;
  const problem = h("div", null);
  const log = h("div", { class: "chat", role: "log", "aria-label": "Conversation" });
  const choice = h("select", { onchange: () => open(choice.value, "") });
  const name = h("input", { type: "text", onchange: () => open(agent, name.value.trim()) });
  const words = h("textarea", { rows: 3, required: true, name: "message" });
  const send = h("button", { type: "submit", class: "primary" }, "Send");
  const cancel = button("Stop it", () => post(`${runPath(going)}/cancel`, { reason: "stopped in the chat" }), { hidden: true });
  let going = "";
  const form = h("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); say(); } },
    field("Message", words), h("div", { class: "actions" }, send, cancel));
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  fill(main, h("h1", null, "Chat"),
    h("div", { class: "bar" }, field("Agent", choice), field("Session", name), button("New session", () => open(agent, ""))),
    problem, log, form);
  begin();
  return () => {
    over = true;
    stop?.();
  };

  async function begin() {
    try {
      const { agents } = await get("/v1/agents");
      const members = new Set(agents.flatMap((one) => one.team));
      agent ||= agents.find((one) => !members.has(one.name))?.name ?? agents[0]?.name ?? "";
      const names = new Set([...agents.map((one) => one.name), agent].filter(Boolean));
      fill(choice, [...names].map((one) => h("option", { value: one, selected: one === agent }, one)));
      if (!agent) fill(problem, alert("No live agent: start one with `cadre up` or `cadre agent FILE`."));
      await open(agent, session);
    } catch (error) {
      fill(problem, alert(error.message));
    }
  }

  /** Shows the turns of a session, or begins a new one where none is named. */
  async function open(whose, which) {
    stop?.();
    stop = null;
    agent = whose;
    // Not randomUUID, which only pages over https have.
    session = which || `chat-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}`;
    name.value = session;
    setQuery({ agent, session: which });
    busy("");
    fill(problem);
    fill(log, empty("Nothing was said yet."));
    if (!which) return;
    const { runs } = await get(withQuery("/v1/runs", { agent, session, limit: TURNS }));
    if (over || session !== which || !runs.length) return;
    fill(log);
    for (const run of runs.reverse()) {
      const turn = drawTurn(run);
      if (run.ended_at) turn.ended(await get(`${runPath(run.id)}?limit=1`));
      else follow(run.id, turn);
      if (over || session !== which) return;
    }
  }

  async function say() {
    const text = words.value.trim();
    if (!text) return;
    send.disabled = true;
    try {
      const run = await post("/v1/runs", { agent, session, task: text });
      setQuery({ agent, session });
      words.value = "";
      log.querySelector(".empty")?.remove();
      follow(run.id, drawTurn({ id: run.id, task: text }));
      fill(problem);
    } catch (error) {
      fill(problem, alert(error.message));
      send.disabled = false;
    }
  }

  function busy(run) {
    going = run;
    send.disabled = Boolean(run);
    cancel.hidden = !run;
  }

  /** A question and its answer, which grows; `show(tree)` draws what events tell, `ended(run)` how it ended. */
  function drawTurn({ id, task }) {
    const answer = h("div", { class: "said" });
    const decisions = h("div", null);
    const forms = new Map(); // by call: what a person types must stay
    log.append(h("article", { class: "turn" },
      h("div", { class: "asked" }, h("span", { class: "who" }, "You"), h("p", null, withCode(task))),
      h("div", { class: "answered" }, h("a", { class: "who", href: `#/run/${encodeURIComponent(id)}` }, agent), answer, decisions)));
    log.lastChild.scrollIntoView?.({ block: "nearest" });
    return {
      show(tree) {
        const held = heldCalls(tree);
        for (const [call, element] of forms) {
          if (held.some((one) => one.key === call)) continue;
          element.remove();
          forms.delete(call);
        }
        for (const { key, is_question: question, name } of held) {
          if (forms.has(key)) continue;
          const element = h("section", null, h("h2", null, question ? "Question" : name), decisionForm(key.slice("call:".length), { name }).element);
          forms.set(key, element);
          decisions.append(element);
        }
        const { text, doing } = writing(tree);
        fill(answer, text && h("pre", { class: "live" }, text), h("p", { class: "hint" }, doing));
      },
      ended(run) {
        fill(decisions);
        const failed = run.state !== "success";
        fill(answer, failed && badge("failed", run.state.replaceAll("_", " ")), run.error && alert(errorText(run.error)),
          run.output !== undefined && run.output !== null && showAnswer(run.output));
      },
    };
  }

  function follow(id, turn) {
    const tree = emptyTree(id);
    let frame = null;
    busy(id);
    let lost = false;
    const paint = async () => {
      frame = null;
      const root = rootOf(tree);
      if (!root) return;
      if (!isOver(root)) {
        turn.show(tree);
        return;
      }
      try {
        turn.ended(await get(withQuery(runPath(id), { limit: 1 })));
      } catch (error) {
        fill(problem, alert(error.message));
      }
      if (going === id) busy("");
    };
    stop = followRun(runPath(id), {
      onEvents(events) {
        takeEvents(tree, events);
        frame ??= requestAnimationFrame(paint);
      },
      onLink(state, told) {
        if (state === "lost" && !lost) toast(lostText(told), true);
        lost = state === "lost";
      },
      onRefused: (error) => fill(problem, alert(error.message)),
    });
  }
}
