"""A team in one Python file: `cadre up app.py` serves both agents and the tool."""

from dataclasses import dataclass

from cadre import Agent, Schedule


@dataclass
class Report:
    """The answer of the reporter."""

    title: str
    words: int


def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


reporter = Agent(
    "reporter",
    instructions="Report on texts. Let the tool count; never count yourself.",
    tools=[count_words],
    output_type=Report,
)
editor = Agent(
    "editor",
    instructions="Have texts reported on, and say which is the longest.",
    team=[reporter],
    limits={"max_steps": 10},
)
weekly = Schedule("weekly", agent=editor, task="Sum up the week.", cron="0 8 * * 1", paused=True)

if __name__ == "__main__":
    print(reporter.run_sync("Report on 'to be or not to be'.").output)
