"""Runs in the environment of `make compat`: times smolagents' own interpreter on what comes as lines of JSON.

`{"code"}` is answered by the milliseconds that it took in an interpreter that lasts; `{"code", "limit"}` by the seconds
beyond the limit after which control was back.
"""

import json
import sys
import time

from smolagents.local_python_executor import LocalPythonExecutor


def executor(limit: float) -> LocalPythonExecutor:
    made = LocalPythonExecutor([], timeout_seconds=limit)
    made.send_tools({})
    return made


def seconds(run: LocalPythonExecutor, code: str) -> float:
    began = time.perf_counter()
    try:
        run(code)
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
    return time.perf_counter() - began


warm = executor(30)
for line in sys.stdin:
    asked = json.loads(line)
    if "limit" in asked:
        answer = seconds(executor(asked["limit"]), asked["code"]) - asked["limit"]
    else:
        answer = seconds(warm, asked["code"]) * 1e3
    print(json.dumps(answer), flush=True)
