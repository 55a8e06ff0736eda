"""An agent over the Responses API with a native tool: killed while its model streams, and taken over by a replica that
stands by, before and after native items are in its context."""

from pathlib import Path

from harness.command import commands_of
from harness.patience import eventually
from harness.stack import Stack

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: finder}
spec:
  description: Finds things.
  model: {api: responses, tool_choice: auto, native_tools: [{type: web_search}]}
"""

SCRIPT = """
rules:
  - name: search
    match: {turn: 0}
    reply:
      - {content: Moss is a long word that never ends here., chunk: 1, delay: 2}
      - items:
          - {type: reasoning, id: rs_1, summary: [{type: summary_text, text: Look it up.}], encrypted_content: opaque}
          - {type: web_search_call, id: ws_7, status: completed, action: {type: search, query: moss}}
        content: Moss is green.
        annotations: [{type: url_citation, url: "https://example.com", title: Moss, start_index: 0, end_index: 4}]
        tool_calls: [{name: look, arguments: {}}]
  - name: answer
    match: {turn: 1}
    reply:
      - {content: So moss is something that takes long to say., chunk: 1, delay: 2}
      - tool_calls:
          - name: final_answer
            arguments:
              answer: "{{ find(body | tojson, 'ws_.') }} {{ find(body | tojson, 'opaque') }} {{ body.tools[-1].type }}"
"""


def test_a_run_is_taken_over_in_the_middle_of_a_streamed_response(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        (tmp_path / "script.yaml").write_text(SCRIPT)
        (tmp_path / "finder.yaml").write_text(AGENT)
        stack.model(tmp_path / "script.yaml")
        first = stack.agent(tmp_path / "finder.yaml", start=False)
        gateway = stack.open_gateway(1)
        run = gateway.submit("finder", "What is moss?")
        gateway.wait_for(run, "delta")
        second = stack.agent(tmp_path / "finder.yaml", name="finder-2")
        first.kill()
        gateway.wait_for(run, "model.called", step=2)
        eventually(lambda: len(stack.model_requests()) == 3, what="the model is asked with native items")
        first.start()
        second.kill()
        assert gateway.succeeded(run) == "ws_7 opaque web_search"
        events = [(name, data["event"]) for name, data in gateway.events(run) if "event" in data]
        assert [event["attempt"] for name, event in events if name == "model.called"] == [1, 2, 1, 2]
        answered, last = [event for name, event in events if name == "model.answered"]
        kinds = ["reasoning", "web_search_call", "message", "function_call"]
        assert [item["type"] for item in answered["items"]] == kinds
        assert [call["name"] for call in last["calls"]] == ["final_answer"]
        assert [line["rule"] for line in stack.model_requests()] == ["search", "search", "answer", "answer"]
        cadre = commands_of(stack, tmp_path)
        shown = cadre("show", run, "--full").stdout
        for line in ("reasoning: Look it up.", 'web_search_call {"action"', "cites Moss https://example.com"):
            assert line in shown
        assert cadre("replay", run).returncode == 0
