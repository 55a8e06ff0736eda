"""A program of the standard library alone."""

import json
import os
import sys
import urllib.request

from cadre_program import tools


def main(task: str) -> object:
    body = {"model": "mine", "messages": [{"role": "user", "content": task}]}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    found = [name for name in ("cadre", "openai", "msgspec") if __import__("importlib.util").util.find_spec(name)]
    return {"said": said, "booked": tools.call_sync("book", n=1), "found": found, "prefix": sys.prefix}
