"""Where prompts to agents on NATS and their answers lie: in a stream of their own, made by whoever prompts."""


def exchange_stream(prefix: str) -> str:
    """The stream of a deployment's prompts, on the server where the agents are."""
    return f"{prefix.upper()}-REMOTE"


def exchange_subject(prefix: str, agent: str, task: str) -> str:
    """The subject below which all that was said of a task lies; `*` stands for any agent."""
    return f"{prefix}.remote.{agent}.{task}"
