"""A run of so many steps with smolagents: `MODEL_URL MODEL` and `stream`, where answers are to come in pieces."""

import sys
from collections import deque

import smolagents

from bench.peers.playing import in_threads, serve
from bench.peers.run import END, TASK, page


class ReadPage(smolagents.Tool):  # type: ignore[misc]
    name = "read_page"
    description = "Read a page."
    inputs = {"number": {"type": "integer", "description": "Which one."}}  # noqa: RUF012 - as smolagents has it
    output_type = "string"

    def forward(self, number: int) -> str:
        return page(number)


def main(url: str, model: str, *options: str) -> None:
    streams = "stream" in options
    endpoint = smolagents.OpenAIServerModel(model_id=model, api_base=url, api_key="none")

    def run() -> None:
        agent = smolagents.ToolCallingAgent(
            tools=[ReadPage()], model=endpoint, stream_outputs=streams, verbosity_level=smolagents.LogLevel.OFF
        )
        if streams:
            [last] = deque(agent.run(TASK, stream=True), maxlen=1)
            answer = last.output
        else:
            answer = agent.run(TASK)
        if answer != END:
            raise RuntimeError(f"the run ended with {answer!r}")

    serve(in_threads(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
