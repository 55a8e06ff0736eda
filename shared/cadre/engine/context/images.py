"""Images that tools return, as a model that sees is shown them: once, and only the latest of them.

Messages stay as they were once said, so that an endpoint can go on from its cache. The one exception is here: an
image over the agent's limit is replaced by a note where it stood, since images weigh more than all texts around them.
"""

from collections.abc import Iterator
from typing import Any, get_args

from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Run
from cadre.protocol.files import dicts_in

SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that model endpoints read."""

_ABOVE = "What the results above show, in their order:"


WITHOUT_IMAGES = frozenset(get_args(ev.CommonEvent)) - {ev.ToolAnswered, ev.DelegateFinished}
"""Events that never bring one."""


class Pictured(dict[str, Any]):
    """A message that shows images of a step; other messages with images are the task's, and keep them."""


def images_of(output: Any) -> list[str]:
    """`blob:` references of the images within a value, in their order, each once."""
    return list(dict.fromkeys(_images(output)))


def shown_by(event: ev.AnyEvent) -> list[str]:
    """Return the images that an event brings for a model to see."""
    match event:
        case ev.ToolAnswered():
            if isinstance(event.output, str) and not event.files:
                return []
            cut = [file.ref for file in event.files if file.media_type in SHOWN]
            return list(dict.fromkeys([*_images(event.output), *cut]))
        case ev.DelegateFinished():
            return images_of(event.output)
        case _:
            return [*event.describe().images]


def note_images(run: Run, event: ev.AnyEvent, images: list[str]) -> None:
    """Add the images of an event to the step in work; what comes for none, or too late, is not shown."""
    if run.current is None:
        return
    if isinstance(event, ev.ToolAnswered | ev.DelegateFinished):
        call = run.call(event.call)
        if call is None or not call.is_open:
            return
    known = run.current.images
    run.current.images = [*known, *(image for image in images if image not in known)]


def with_images_of(step: ActionStep, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A step's messages with its images: in the observation, or behind the results of its calls."""
    if not step.images:
        return messages
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in step.images]
    *before, last = messages
    if last["role"] == "user" and isinstance(last["content"], str):
        return [*before, Pictured(role="user", content=[{"type": "text", "text": last["content"]}, *parts])]
    return [*messages, Pictured(role="user", content=[{"type": "text", "text": _ABOVE}, *parts])]


def latest(messages: list[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    """The messages with the last images of steps, as many as the agent's limit allows, and notes for the rest."""
    left = run.spec.limits.images if run.spec is not None else 0
    kept = list(messages)
    for place in range(len(kept) - 1, -1, -1):
        message = kept[place]
        if not isinstance(message, Pictured):
            continue
        parts = message["content"]
        images = [one for one in parts if one["type"] == "image_url"]
        shown, left = images[max(0, len(images) - left) :], max(0, left - len(images))
        if len(shown) < len(images):
            text = {"type": "text", "text": f"{parts[0]['text']}\n{_note(len(images) - len(shown))}"}
            kept[place] = Pictured(message, content=[text, *shown])
    return kept


def _note(dropped: int) -> str:
    what = "An image" if dropped == 1 else f"{dropped} images"
    return f"[{what} of this step, shown before, left out now: only the latest images are shown.]"


def _images(value: Any) -> Iterator[str]:
    for item in dicts_in(value):
        match item:
            case {"$file": {"ref": str(ref), "media_type": str(kind)}} if len(item) == 1:
                yield from [ref] if kind in SHOWN and ref.startswith("blob:") else []
            case {"$given": ["image", str(ref), *_]} if len(item) == 1:
                yield ref
