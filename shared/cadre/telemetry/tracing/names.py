"""Every name in Cadre's spans: OpenTelemetry's GenAI conventions, a few of OpenInference's, and our own.

The GenAI conventions are still in development and will change: they are written here and nowhere else.
"""

from importlib import metadata

SCOPE = "cadre"
"""Name of the instrumentation scope."""

VERSION = metadata.version("cadre-agents")
"""Version of the instrumentation scope, and of services that are Cadre's own."""

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"

# --- operations: the first word of a span's name, and the value of OPERATION where it is one of the conventions'

INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
PLAN = "plan"
STEP = "step"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
PROCESS = "process"
SEND = "send"
WAIT_APPROVAL = "wait_approval"
WAIT_MODEL = "wait_model"
SEARCH_MEMORY = "search_memory"
UPSERT_MEMORY = "upsert_memory"
DELETE_MEMORY = "delete_memory"

MEMORY_TOOLS = {
    "recall": SEARCH_MEMORY,
    "query_resources": SEARCH_MEMORY,
    "remember": UPSERT_MEMORY,
    "forget_memory": DELETE_MEMORY,
}
"""The operation of each tool of the memory service."""

# --- GenAI

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
OPENAI = "openai"
"""The provider: every endpoint is called by OpenAI's API, and a journal does not say whose endpoint it is."""
CONVERSATION = "gen_ai.conversation.id"
WORKFLOW = "gen_ai.workflow.name"
AGENT = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
AGENT_DESCRIPTION = "gen_ai.agent.description"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_ID = "gen_ai.response.id"
TIME_TO_FIRST = "gen_ai.response.time_to_first_chunk"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
ALL_INPUT_TOKENS = "gen_ai.aggregated_usage.input_tokens"
ALL_OUTPUT_TOKENS = "gen_ai.aggregated_usage.output_tokens"
"""Tokens of a run with all runs below it; under `gen_ai.usage.…` a sum would count them twice."""
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
TOP_K = "gen_ai.retrieval.top_k"
QUERY_TEXT = "gen_ai.memory.query.text"
MEMORY_COUNT = "gen_ai.memory.record.count"
DECISION_EVENT = "gen_ai.tool.call.decision"
DECISION = "gen_ai.tool.call.decision.outcome"

# --- what is no matter of models

ERROR_TYPE = "error.type"
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
DESTINATION_TEMPLATE = "messaging.destination.template"
MESSAGE_ID = "messaging.message.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
PROCESS_EXECUTABLE = "process.executable.name"
USER = "user.id"
SESSION = "session.id"
SERVICE = "service.name"
SERVICE_NAMESPACE = "service.namespace"
SERVICE_INSTANCE = "service.instance.id"
K8S_NAMESPACE = "k8s.namespace.name"
K8S_POD = "k8s.pod.name"
SERVICE_VERSION = "service.version"

# --- OpenInference

KIND = "openinference.span.kind"
INPUT_VALUE = "input.value"
OUTPUT_VALUE = "output.value"
LLM_MODEL = "llm.model_name"
LLM_PROMPT_TOKENS = "llm.token_count.prompt"
LLM_COMPLETION_TOKENS = "llm.token_count.completion"
LLM_TOTAL_TOKENS = "llm.token_count.total"
LLM_CACHED_TOKENS = "llm.token_count.prompt_details.cache_read"
LLM_REASONING_TOKENS = "llm.token_count.completion_details.reasoning"
LLM_COST = "llm.cost.total"
OI_TOOL = "tool.name"
OI_AGENT = "agent.name"

# --- Cadre's own

RUN = "app.run.id"
RUN_STATUS = "app.run.status"
RUN_STEPS = "app.run.steps"
AGENT_PATH = "app.agent.path"
STEP_NUMBER = "app.step.number"
STEP_NAME = "app.step.name"
PURPOSE = "app.model.purpose"
ATTEMPT = "app.attempt"
COST = "app.cost"
ALL_COST = "app.aggregated_cost"
"""Cost of a run with all runs below it; under `app.cost`, which model calls have, a sum would count it twice."""
LANGFUSE_COST = "gen_ai.usage.cost"
STATUS_CODE = "app.model.status_code"
WAIT_REASON = "app.wait.reason"
APPROVAL_OUTCOME = "app.approval.outcome"
CALL_STATE = "app.call.state"
CHILD_RUN = "app.child.run.id"
TRACE_PART = "app.trace.part"
"""Number of the part in which a span was sent, where its tree was sent in several (`CADRE_TRACES_SEND=ended`)."""
SANDBOX_TIER = "app.sandbox.tier"
SANDBOX_EXCHANGE = "app.sandbox.exchange"
MESSAGE_EVENT = "app.message_received"
SIGNAL_EVENT = "app.signal_received"
CANCEL_EVENT = "app.cancel_requested"
FINAL_ANSWER_EVENT = "app.final_answer"

INTERRUPTED = "interrupted"
MODEL_GIVEN_UP = "model_given_up"
"""The ERROR_TYPE of a model call that was made to another model next."""

WORKER_LOST = "worker_lost"
"""The ERROR_TYPE of a model call whose worker died; the next attempt has taken its place."""
