"""Why the models of stepwise agents are asked, and how that is told to a person who looks on."""

from collections.abc import Mapping

STEPWISE: Mapping[str, str] = {
    "act": "thinking",
    "plan": "planning",
    "final": "writing the final answer",
}
