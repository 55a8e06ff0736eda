"""Make embeddings without a model: the same text always has the same vector.

Each word has its own direction and a text is the sum of its words, so texts that share words lie close together. The
vectors carry no meaning."""

import base64
import hashlib
import math
import re
import struct
from typing import Any

from cadre_scripted_model import MODEL_ID
from cadre_scripted_model.request import BadRequest

DIMENSIONS = 64
_MAX_DIMENSIONS = 4096

_WORD = re.compile(r"\w+")


def answer(body: object) -> dict[str, Any]:
    """Returns the answer to a request for embeddings. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    texts = _texts(body.get("input"))
    dimensions = body.get("dimensions") or DIMENSIONS
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise BadRequest(f"dimensions must be from 1 to {_MAX_DIMENSIONS}", "dimensions")
    form = body.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise BadRequest("encoding_format must be float or base64", "encoding_format")
    vectors = [vector(text, dimensions) for text in texts]
    words = sum(len(_WORD.findall(text)) for text in texts)
    return {
        "object": "list",
        "model": str(body.get("model") or MODEL_ID),
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(one) if form == "base64" else one}
            for index, one in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": words, "total_tokens": words},
    }


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Returns the text's vector, which has length 1."""
    total = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [""]:
        digest = hashlib.shake_128(word.encode()).digest(dimensions)
        for place, byte in enumerate(digest):
            total[place] += byte - 127.5
    length = math.sqrt(sum(number * number for number in total))
    return [number / length for number in total]


def _texts(given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise BadRequest("input must be a text, or a list of texts, none of them empty", "input")
    return texts


def _encoded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
