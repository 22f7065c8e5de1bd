"""Take the screenshots in docs/: serve the embedded digits, simulate some clicks, and open the page in Chromium.

Run `python scripts/screenshots.py`; it needs Chromium and `pip install 'bitrank[test]'`.
"""

import argparse
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

ADDRESS = re.compile(r"http://[\d.]+:\d+")
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
ITEM = 5
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LOOKS = {
    "page-light.png": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "light"},
    "page-dark.png": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "dark"},
    "page-phone.png": {"viewport": {"width": 360, "height": 960}, "color_scheme": "light"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, default=PICTURES, help="folder for the pictures (default: docs/pictures)"
    )
    parser.add_argument("--pages", type=int, default=1500, help="pages of clicks to send first (default: %(default)s)")
    arguments = parser.parse_args()
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-c", "from bitrank.cli import main; main()", "serve", "--port", "0", "--data", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                url = next(found[0] for line in iter(service.stdout.readline, "") if (found := ADDRESS.search(line)))
                teach(url, arguments.pages)
                photograph(url, output)
            finally:
                service.terminate()


def teach(url: str, n_pages: int) -> None:
    """Answer pages as somebody does who wants the same digit as the query's."""
    rng = random.Random(0)
    for _ in range(n_pages):
        item = rng.randrange(10_000)
        label = call(f"{url}/items/{item}")["payload"]["label"]
        found = call(f"{url}/search", {"item": item, "explore": 8})
        wanted = [result["id"] for result in found["results"] if result["payload"]["label"] == label]
        clicked = [one for one in wanted if rng.random() < 0.5]
        call(f"{url}/feedback", {"page_token": found["page_token"], "clicked": clicked})
    while call(f"{url}/profiles/default/candidate")["n_learned"] < n_pages:
        time.sleep(0.5)


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as response:
        return json.load(response)


def photograph(url: str, output: Path) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *flags])
        for name, look in LOOKS.items():
            page = browser.new_page(reduced_motion="reduce", **look)
            page.goto(f"{url}/?item={ITEM}")
            for place in (8, 4):
                page.locator("#learned li:not(.explored):not(.liked) button").nth(place).click()
                expect(page.locator("#learned li.liked")).not_to_have_count(0)
                expect(page.locator("body")).not_to_have_attribute("aria-busy", "true")
            page.locator("body").evaluate("() => (document.activeElement.blur(), scrollTo(0, 0))")
            shrink(page.screenshot(full_page="phone" not in name), output / name)
        browser.close()


def shrink(picture: bytes, path: Path) -> None:
    """Save with a palette: a third of the size, and no difference to the eye."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
