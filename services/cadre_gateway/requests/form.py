"""Read a body of the type multipart/form-data (RFC 7578), as browsers and clients of OpenAI send files."""

from __future__ import annotations

from email.message import Message
from typing import NamedTuple

from cadre_gateway.requests.problems import invalid

FORM_BYTES = 64 * 1024
"""The most that a form may have in addition to its file."""


_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""What the names of files are written with, as browsers and HTTP clients do."""


class FormField(NamedTuple):
    """One field of a form."""

    data: bytes
    file_name: str | None
    """None for a field that is no file."""
    media_type: str

    @property
    def text(self) -> str:
        """Return the value of a field that is no file."""
        return self.data.decode(errors="replace")


def fields_of(data: bytes, content_type: str) -> dict[str, FormField]:
    """Return the fields of the form by name, of two of one name the last. Raise a 400 problem for another body."""
    about = Message()
    about["content-type"] = content_type
    boundary = about.get_param("boundary")
    if about.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise invalid("send the file as a form: multipart/form-data with a boundary", status=400)
    found = {}
    # Each part begins behind a line with the boundary; the last one is followed by the boundary and `--`.
    _, *parts = (b"\r\n" + data).split(b"\r\n--" + boundary.encode())
    if not parts or not parts[-1].startswith(b"--"):
        raise invalid("the form breaks off: its last boundary is missing", status=400)
    for part in parts[:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        headers = Message()
        for line in head.decode(errors="replace").split("\r\n"):
            name, _, value = line.partition(":")
            if name.strip():
                headers[name.strip()] = value.strip()
        field = headers.get_param("name", header="content-disposition")
        if not isinstance(field, str):
            raise invalid("a part of the form has no name", status=400)
        file_name = headers.get_filename()
        for escape, sign in _ESCAPES.items():
            file_name = file_name.replace(escape, sign) if file_name is not None else None
        found[field] = FormField(content, file_name, headers.get_content_type())
    return found
