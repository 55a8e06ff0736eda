"""What an endpoint takes and wants back, where endpoints of the same API differ."""

from typing import Any, Literal

import msgspec

TokenLimit = Literal["max_tokens", "max_completion_tokens"]
"""Names of the parameter that bounds an answer."""

ReasoningBack = Literal["never", "received", "required", "signed", "verbatim"]
"""When the reasoning of an answer goes back to the model that gave it: never; where and as it was received; the same,
and a blank `reasoning_content` with each call that has none; the same as received, and a signature that stands in with
calls that have none; the same as received, and the content with the thoughts that are written into it."""

PROFILE_KEYS = (
    "token_limit",
    "tool_choice",
    "stop",
    "strict",
    "stream_usage",
    "user_after_tool",
    "reasoning_back",
)
"""Keys of a profile, which are keys of the section `model` too."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent to an endpoint; the defaults are what most endpoints take."""

    token_limit: TokenLimit | None = "max_tokens"
    """The parameter that bounds an answer; None: no bound is sent."""
    tool_choice: Literal["auto", "required"] = "auto"
    """`required`: the endpoint can be asked for a call in each answer. `auto` is never written into a request."""
    stop: bool = False
    """Stop sequences are sent."""
    strict: bool = True
    """A schema that fits the strict subset is marked `strict`."""
    stream_usage: bool = True
    """Streams are asked to tell what they use."""
    user_after_tool: bool = True
    """A message of the user may follow the result of a tool."""
    reasoning_back: ReasoningBack = "received"


def with_keys(profile: Profile, keys: dict[str, Any]) -> Profile:
    """Return the profile with these of its keys changed. Raises msgspec.ValidationError for a value that none takes."""
    return msgspec.convert({**msgspec.structs.asdict(profile), **keys}, Profile)
