"""Images and sound of other libraries as files: Pillow's images, smolagents' AgentImage and AgentAudio.

None of these libraries is imported here: objects are recognised by the names of their classes.
"""

import io
from pathlib import Path
from typing import Any

from cadre.tools.files import File

_IMAGE = ("PIL.Image", "Image")
_AGENT_IMAGE = "AgentImage"
_AGENT_AUDIO = "AgentAudio"


def file_of(value: Any) -> File | None:
    """The object as a file; None if it is of no such class. Raises what the object raises."""
    classes = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    ours = {name for module, name in classes if module.partition(".")[0] == "smolagents"}
    if _AGENT_AUDIO in ours:
        # `to_string` writes the samples to a file and returns its path.
        return File.from_path(Path(value.to_string()))
    if _AGENT_IMAGE in ours:
        value = value.to_raw()
        classes = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    if _IMAGE not in classes:
        return None
    stream = io.BytesIO()
    value.save(stream, format="PNG")
    return File(stream.getvalue(), media_type="image/png")
