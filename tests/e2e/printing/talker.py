"""A program that prints, as its libraries may."""

import os
import subprocess
import sys

print("the program is imported", file=sys.stderr)


def main(task: str) -> str:
    print("the program printed")
    os.write(2, b"the program wrote \xff")
    subprocess.run(["sh", "-c", "echo the child of the program"], check=True)
    return task
