"""An agent as a Python script: `python agent.py`."""

from cadre import Agent, serve

writer = Agent(
    "writer",
    description="Answers questions about texts and their length.",
    instructions="Let the tool count; never count yourself.",
    tools=["count_words"],
)

if __name__ == "__main__":
    serve(writer)
