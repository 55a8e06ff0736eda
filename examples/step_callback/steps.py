"""A step callback: `python steps.py RUN` tells of every step of a run and of the runs below it."""

import asyncio
import sys

from cadre import follow


async def main(run: str) -> None:
    async for event in follow(run):
        if event.type == "step.finished":
            step, error = event.data["event"]["step"], event.data["event"].get("error")
            print(f"{event.data['agent']} step {step}: {error['message'] if error else 'done'}")


asyncio.run(main(sys.argv[1]))
