"""Take the pictures of the console for the documentation: `make pictures`.

It starts the tutorial's team, gives it tasks, holds a refund for a person, and writes docs/pictures/*.png with the
Chromium of this machine.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from cadre import Client

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "pictures"
CADRE = Path(sys.executable).with_name("cadre")
FILE = re.compile(r'^```\w+ title="(support/[^"]+)"\n(.*?)^```', re.M | re.S)
READY = re.compile(r"^gateway +(http://\S+)$")
WAIT_SECONDS = 120


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the team of the tutorial in the folder; yield the gateway's address once all is ready."""
    (folder / "support").mkdir()
    for name, text in FILE.findall((DOCS / "start" / "tutorial.md").read_text()):
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "support/make_orders.py"], cwd=folder, check=True)
    command = [CADRE, "up", "support", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        assert up.stdout is not None
        address = ""
        try:
            for line in up.stdout:
                found = READY.match(line)
                address = found[1] if found else address
                if line.startswith("cadre: ready"):
                    yield address
                    return
            raise SystemExit("the team did not start: run `cadre up` on the tutorial's files")
        finally:
            up.terminate()
            up.stdout.close()


def take(page: Page, name: str) -> None:
    """Write what is in view to a picture."""
    page.screenshot(path=PICTURES / f"console-{name}.png")


def main() -> None:
    """Play the tutorial's tasks and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no browser: install chromium")
    PICTURES.mkdir(exist_ok=True)
    expect.set_options(timeout=1000 * WAIT_SECONDS)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address, Client(address) as cadre:
        for number in range(3):
            cadre.run("desk", "My order A-18: where is it?", user=f"bob{number}", timeout=WAIT_SECONDS)
        run = cadre.start("desk", "My order A-17 arrived broken.", user="ada")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium)
            page = browser.new_page(viewport={"width": 1280, "height": 820})
            page.set_default_timeout(1000 * WAIT_SECONDS)
            page.goto(f"{address}/#/run/{run.id}")
            held = page.get_by_role("treeitem").filter(has_text="waits for approval")
            held.last.click()
            expect(page.get_by_label("amount")).to_have_value("80.0")
            take(page, "approval")
            page.goto(f"{address}/#/approvals")
            expect(page.get_by_role("button", name="Approve").first).to_be_visible()
            take(page, "approvals")
            page.goto(f"{address}/#/")
            expect(page.get_by_text("1 waiting for a decision")).to_be_visible()
            take(page, "overview")
            page.goto(f"{address}/#/run/{run.id}")
            held.last.click()
            page.get_by_role("button", name="Approve", exact=True).click()
            expect(page.locator(".run-head .badge")).to_have_text("success")
            page.get_by_role("treeitem").filter(has_text="refund").last.click()
            take(page, "run")
            browser.close()


if __name__ == "__main__":
    main()
