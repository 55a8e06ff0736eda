"""README's `helper`, unchanged, at endpoints whose answers were recorded or reported, and at ones that refuse.

A report's answer calls its own tool. It is played for `helper` by one rule: in the parsed chunks, or the parsed
whole answer, the name of the call and the texts of its arguments are replaced, the new arguments cut over as many
pieces as there were. All else, the framing, the fields and their order, stays as reported. A report of a whole answer
is played to a `helper` that asks for no stream.

The endpoint has its real address: the agents reach it through `HTTP_PROXY`, so its profile is the known one. What the
endpoint refuses, it refuses here.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre_scripted_model.record_replay import Cassette
from harness.patience import eventually
from harness.stack import Gateway, Stack

ROOT = Path(__file__).parents[2]
ANSWERS = ROOT / "tests/endpoints/answers"
TASK = "How many words has 'to be or not to be'?"

Body = dict[str, Any]


class Refusal(Exception):
    """An answer of the endpoint with status 400."""


def _no_demand(body: Body) -> None: ...


def _gemini(body: Body) -> None:
    for key in ("seed", "frequency_penalty", "presence_penalty"):
        if key in body:
            raise Refusal(f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.')
    for one in body["messages"]:
        for call in one.get("tool_calls") or []:
            if not call.get("extra_content", {}).get("google", {}).get("thought_signature"):
                raise Refusal("Function call is missing a thought_signature in functionCall parts.")


def _llama_cpp(body: Body) -> None:
    if any(one.get("content") is None for one in body["messages"]):
        raise Refusal("Expected 'content' to be a string or an array")


def _lm_studio(body: Body) -> None:
    if any(one.get("content") is None for one in body["messages"]):
        raise Refusal("Invalid 'content': 'content' field must be a string or an array of objects.")
    if isinstance(body.get("tool_choice"), dict):
        raise Refusal("Invalid tool_choice type: 'object'.")
    if body.get("response_format", {}).get("type") == "json_object":
        raise Refusal("'response_format.type' must be 'json_schema' or 'text'")


def _ollama(body: Body) -> None:
    for one in body["messages"]:
        for call in one.get("tool_calls") or []:
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                raise Refusal("invalid tool call arguments")


def _openrouter(body: Body) -> None:
    if "/" not in body["model"]:
        raise Refusal(f"{body['model']} is not a valid model ID")
    if "max_completion_tokens" in body:
        raise Refusal("Unrecognized key: max_completion_tokens")


def _openai(body: Body) -> None:
    results = {one["tool_call_id"] for one in body["messages"] if one["role"] == "tool"}
    for one in body["messages"]:
        for call in one.get("tool_calls") or []:
            if len(call["id"]) > 40:
                raise Refusal("Invalid 'messages.tool_calls.id': string too long. Expected at most 40.")
            if call["id"] not in results:
                raise Refusal("An assistant message with 'tool_calls' must be followed by tool messages.")


def _zai(body: Body) -> None:
    if body.get("tool_choice", "auto") != "auto":
        raise Refusal("Tool choice must be auto")


def _groq(body: Body) -> None:
    for key in ("logprobs", "logit_bias", "store"):
        if key in body:
            raise Refusal(f"property '{key}' is unsupported")
    if any("name" in one for one in body["messages"]):
        raise Refusal("'messages.0' : property 'name' is unsupported")


def _mistral(body: Body) -> None:
    for key in ("stream_options", "max_completion_tokens", "store", "seed"):
        if key in body:
            raise Refusal(f"extra_forbidden: body, {key}: Extra inputs are not permitted")
    if not body.get("tools", [1]):
        raise Refusal("extra_forbidden: body, tools: Extra inputs are not permitted")
    for before, one in zip([None, *body["messages"]], body["messages"], strict=False):
        if before and before["role"] == "tool" and one["role"] == "user":
            raise Refusal("Unexpected role 'user' after role 'tool'")
        for call in one.get("tool_calls") or []:
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                raise Refusal("Tool call id has to be defined, a-z, A-Z, 0-9, with a length of 9.")
    if body["messages"][-1]["role"] not in ("user", "tool"):
        raise Refusal("Expected last role User or Tool (or Assistant with prefix True) for serving")


def _deepseek(body: Body) -> None:
    if body.get("tool_choice", "auto") not in ("auto", "none"):
        raise Refusal("deepseek-reasoner does not support this tool_choice")
    for one in body["messages"]:
        if one.get("tool_calls") and one.get("reasoning_content") != "The user asks":
            raise Refusal("The reasoning_content in the thinking mode must be passed back to the API.")


def _dashscope(body: Body) -> None:
    if body.get("tool_choice", "auto") not in ("auto", "none"):
        raise Refusal("The tool_choice parameter does not support being set to required or object in thinking mode")
    if not all(isinstance(one["content"], str) for one in body["messages"] if one["role"] == "tool"):
        raise Refusal("<400> InternalError.Algo.InvalidParameter: messages with role tool need a text")


def _xai(body: Body) -> None:
    for key in ("stop", "presence_penalty", "frequency_penalty"):
        if key in body:
            raise Refusal(f"Model grok-3-mini does not support parameter {key}.")


def _anthropic(body: Body) -> None:
    for one in body["messages"]:
        if one["role"] != "assistant" and one["content"] in ("", []):
            raise Refusal("messages: text content blocks must be non-empty")
        for call in one.get("tool_calls") or []:
            if not re.fullmatch("[a-zA-Z0-9_-]+", call["id"]):
                raise Refusal("messages.1.content.0.tool_use.id: String should match pattern")


def _cerebras(body: Body) -> None:
    for key in ("stop", "frequency_penalty", "presence_penalty", "logit_bias"):
        if key in body:
            raise Refusal(f"body.{key}: property 'body.{key}' is unsupported")
    for n, one in enumerate(body["messages"]):
        if "reasoning_content" in one:
            place = f"messages.{n}.{one['role']}.reasoning_content"
            raise Refusal(f"{place}: property '{place}' is unsupported")
    if len({bool(tool["function"].get("strict")) for tool in body.get("tools", [])}) > 1:
        raise Refusal("Tools with mixed values for 'strict' are not allowed.")


PLAYED: dict[str, tuple[str, str, Callable[[Body], None]]] = {
    "vllm-glm-calls-in-one-piece": ("http://vllm.example:8000/v1", "zai-org/GLM-4.6", _no_demand),
    "gemini-call-without-id": (
        "http://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.0-flash-exp",
        _gemini,
    ),
    "llama-cpp-call-with-an-id-of-nine": (
        "http://llama.example:8080/v1",
        "mistralai_Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M.gguf",
        _llama_cpp,
    ),
    "lm-studio-call-in-a-whole-answer": (
        "http://lmstudio.example:1234/v1",
        "qwen3-235b-a22b-instruct-2507_mlx_mixed-3-4",
        _lm_studio,
    ),
    "ollama-call-with-the-finish": (
        "http://ollama.example:11434/v1",
        "llama3-groq-tool-use:8b",
        _ollama,
    ),
    "openrouter-call-with-the-finish": (
        "http://openrouter.ai/api/v1",
        "google/gemini-2.5-flash",
        _openrouter,
    ),
    "openai-call-that-ends-with-stop": ("http://api.openai.com/v1", "openai-with-spice", _openai),
    "zai-call-without-content": ("http://open.bigmodel.cn/api/paas/v4", "glm-4", _zai),
    "groq-call-in-one-piece": ("http://api.groq.com/openai/v1", "llama-3.3-70b-versatile", _groq),
    "mistral-call-without-index": ("http://api.mistral.ai/v1", "mistral-small-latest", _mistral),
    "deepseek-call-behind-reasoning": ("http://api.deepseek.com", "deepseek-v4-flash", _deepseek),
    "dashscope-call-with-blank-ids": (
        "http://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "qwen3-max",
        _dashscope,
    ),
    "xai-call-behind-reasoning": ("http://api.x.ai/v1", "grok-3-mini", _xai),
    "anthropic-call-that-begins-at-index-one": (
        "http://api.anthropic.com/v1",
        "claude-haiku-4-5-20251001",
        _anthropic,
    ),
    "cerebras-call-behind-reasoning": ("http://api.cerebras.ai/v1", "zai-glm-4.7", _cerebras),
}
"""By file, the endpoint's address, the name of the model, and what the endpoint refuses."""


class Played(ThreadingHTTPServer):
    """A proxy that answers requests to any host: a call of `count_words`, then one of `final_answer`."""

    daemon_threads = True

    def __init__(self, answer: Cassette, demand: Any = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.demand = answer, demand
        self.asked: list[tuple[str, Body]] = []
        self.refused = 0
        self.held = threading.Event()
        """Once set, the answers behind the first are held back no longer."""
        self.held.set()


class _Handler(BaseHTTPRequestHandler):
    server: Played

    def do_POST(self) -> None:
        body: Body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        try:
            if self.server.demand is not None:
                self.server.demand(body)
        except Refusal as refusal:
            self.server.refused += 1
            self._send(400, "application/json", json.dumps({"error": {"message": str(refusal)}}))
            return
        results = [one["content"] for one in body["messages"] if one["role"] == "tool"]
        if results:
            self.server.held.wait()
        name, arguments = (
            ("final_answer", {"answer": results[-1]}) if results else ("count_words", {"text": "to be or not to be"})
        )
        answer = self.server.answer
        self._send(answer.status, answer.content_type, played_for(answer, name, json.dumps(arguments)))

    def do_GET(self) -> None:
        self._send(404, "application/json", "{}")

    def _send(self, status: int, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


def played_for(answer: Cassette, name: str, arguments: str) -> str:
    """Return the answer with its call named so, and with these arguments."""
    if not _is_stream(answer):
        whole = json.loads(answer.body)
        _renamed([whole], name, arguments)
        return json.dumps(whole, ensure_ascii=False)
    lines = answer.body.split("\n")
    chunks = {n: json.loads(line[5:]) for n, line in enumerate(lines) if line.startswith("data:") and "{" in line}
    _renamed(list(chunks.values()), name, arguments)
    for n, chunk in chunks.items():
        blank = lines[n][5 : len(lines[n]) - len(lines[n][5:].lstrip())]
        lines[n] = f"data:{blank}{json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}"
    return "\n".join(lines)


def _is_stream(answer: Cassette) -> bool:
    return "event-stream" in answer.content_type


def _renamed(chunks: list[Body], name: str, arguments: str) -> None:
    """Rename the call in these chunks, and cut the arguments over its pieces."""
    calls = [call["function"] for chunk in chunks for call in _calls_in(chunk)]
    pieces = [call for call in calls if call.get("arguments")]
    cuts = [len(arguments) * n // len(pieces) for n in range(len(pieces) + 1)]
    for call in calls:
        if call.get("name"):
            call["name"] = name
    for call, begin, end in zip(pieces, cuts, cuts[1:], strict=False):
        call["arguments"] = arguments[begin:end]


def _calls_in(chunk: Body) -> Iterator[Body]:
    for choice in chunk.get("choices") or []:
        yield from (choice.get("delta") or choice.get("message") or {}).get("tool_calls") or []


@contextmanager
def endpoint(answer: Cassette, demand: Any = None) -> Iterator[Played]:
    server = Played(answer, demand)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.held.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def helper_at(folder: Path, server: Played, url: str, name: str) -> Iterator[tuple[Stack, Gateway]]:
    """README's team of one, its model at that address; it asks for no stream where the report holds a whole answer."""
    readme = (ROOT / "README.md").read_text()
    for file in ("tools.py", "helper.yaml"):
        [text] = re.findall(rf"```\w+\n# {re.escape(file)}\n(.*?)```", readme, re.DOTALL)
        (folder / file).write_text(text)
    if not _is_stream(server.answer):
        with (folder / "helper.yaml").open("a") as spec:
            spec.write("  model: {stream: false}\n")
    with Stack(folder) as stack:
        proxy = f"http://127.0.0.1:{server.server_address[1]}"
        stack.environment |= {"CADRE_MODEL_URL": url, "CADRE_MODEL": name, "http_proxy": proxy}
        stack.tools(folder / "tools.py", start=False)
        stack.agent(folder / "helper.yaml", start=False)
        gateway = stack.open_gateway(1)
        yield stack, gateway


def answer_of(name: str) -> Cassette:
    answer = msgspec.json.decode((ANSWERS / f"{name}.json").read_bytes(), type=Cassette)
    assert answer.origin in ("recorded", "reported")
    return answer


@pytest.mark.parametrize("name", PLAYED)
def test_helper_works_with_the_answers_of(name: str, tmp_path: Path) -> None:
    url, model, demand = PLAYED[name]
    answer = answer_of(name)
    with endpoint(answer, demand) as server, helper_at(tmp_path, server, url, model) as (_, gateway):
        assert gateway.answer("helper", TASK) == "6"
        assert server.refused == 0
        assert all(bool(body.get("stream")) == _is_stream(answer) for _, body in server.asked)
        assert [(path, body["model"]) for path, body in server.asked] == [(f"{url}/chat/completions", model)] * 2


def _wants_reasoning(body: Body) -> None:
    for one in body["messages"]:
        if one.get("tool_calls") and not one.get("reasoning_content"):
            raise Refusal("thinking is enabled but reasoning_content is missing in assistant tool call message")


def test_what_a_refusal_taught_outlives_the_agent_that_was_killed(tmp_path: Path) -> None:
    """The endpoint refuses once: neither the replica that takes over nor a later step is refused again."""
    [name, *_] = PLAYED
    with (
        endpoint(answer_of(name), _wants_reasoning) as server,
        helper_at(tmp_path, server, *PLAYED[name][:2]) as (stack, gateway),
    ):
        server.held.clear()
        run = gateway.submit("helper", TASK)
        eventually(lambda: len(server.asked) == 3, what="the request is sent again in the other form")
        assert server.refused == 1
        agent = stack.services["helper"]
        agent.kill()
        server.held.set()
        agent.start()
        assert gateway.succeeded(run) == "6"
