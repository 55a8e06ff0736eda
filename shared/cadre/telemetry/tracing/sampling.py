"""Which trees are sampled. The decision follows from a tree's id and the `traceparent` of its request, so every process
with the same settings makes the same one at any time."""

from cadre.settings import TracingSettings
from cadre.telemetry.tracing.ids import TRACEPARENT, root_span, sampled, trace_id, traceparent

_PARENT_BASED = "parentbased_"


def samples(settings: TracingSettings, tree: str, asked: str | None) -> bool:
    """Return whether a tree is sampled; `asked` is the `traceparent` of its request, if it had one."""
    sampler = settings.sampler
    if sampler.startswith(_PARENT_BASED):
        if (wanted := sampled(asked)) is not None:
            return wanted
        sampler = sampler.removeprefix(_PARENT_BASED)
    if sampler == "traceidratio":
        # As OpenTelemetry's own sampler does it: by the lower 64 bits.
        return int(trace_id(tree)[16:], 16) < round(settings.sampler_ratio * 2**64)
    return sampler == "always_on"


def handed_down(settings: TracingSettings, tree: str, asked: str | None) -> str | None:
    """Return the `trace` of a root task and, by it, of all below it: what the tree is linked to, if it is sampled, and
    a `traceparent` that is not sampled if the tree is not."""
    if samples(settings, tree, asked):
        return asked if sampled(asked) else None
    if found := TRACEPARENT.fullmatch(asked or ""):
        return f"00-{found[1]}-{found[2]}-00"
    return traceparent(tree, root_span(tree), sampled=False)
