"""`make test-kubernetes`: builds the programs and images of a cluster, and runs the tests in a network namespace.

Needs root, Go, and some packages of Debian, which it names where they are missing. What was built is kept in
build/kubernetes; everything else is gone afterwards.
"""

import os
import subprocess
import sys
from pathlib import Path

from real_cluster import images, programs

FOLDER = Path(os.environ.get("CADRE_KUBERNETES_FOLDER") or images.ROOT / "build" / "kubernetes")
_NAMESPACE = "cadre-test"


def main(arguments: list[str]) -> int:
    if missing := programs.missing_packages():
        print(f"test-kubernetes: not tried: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 1
    if os.geteuid() != 0:
        print("test-kubernetes: not tried: it starts containers, as root alone may", file=sys.stderr)
        return 1
    programs.build(FOLDER)
    images.make_all(FOLDER / "images", FOLDER / "bin")
    images.make_cadre(FOLDER / "images", "test")
    subprocess.run(["ip", "netns", "add", _NAMESPACE], check=True)
    try:
        inside = [
            "nsenter",
            f"--net=/run/netns/{_NAMESPACE}",
            sys.executable,
            "-m",
            "pytest",
            "tests/real_cluster",
        ]
        environment = {**os.environ, "CADRE_KUBERNETES_FOLDER": str(FOLDER)}
        return subprocess.run([*inside, *arguments], cwd=images.ROOT, env=environment, check=False).returncode
    finally:
        subprocess.run(["ip", "netns", "del", _NAMESPACE], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
