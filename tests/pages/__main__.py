"""The pages of some networks: `make pages` writes docs/pages/ and docs/page.png.

The repository keeps only the page of ResNet-50, which documents link to.

`PROFILE=no make pages` leaves out measurements of whole networks, for busy machines;
`python -m tests.pages --redraw` measures nothing: today's scripts draw what the pages have.

`python -m tests.pages FILE.html...` prints the time that a browser takes to show these files.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "neocpu" / "cli"))

import browser

from tests.pages.page_times import page_times, redrawn

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages"
BUILD = ROOT / "build" / "pages"
NETWORKS = ("resnet50", "densenet201", "ssd_resnet50")
TUNED, BUDGET = "squeezenet1_0", "60s"
PROFILE = () if os.environ.get("PROFILE") == "no" else ("--profile",)
"""The option to measure whole networks, which a busy machine would spoil."""
SHOWN = "conv2d_12"
"""The operator that the picture shows: a Winograd convolution."""


def main() -> None:
    """Write the pages, or measure the named ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages")
    parser.add_argument(
        "files", nargs="*", type=Path, help="pages to measure; without any, all are written first"
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="draw all anew, of what they have, and compile nothing",
    )
    given = parser.parse_args()
    named = given.files
    if given.redraw:
        for path in PAGES.glob("*.html"):
            path.write_text(redrawn(path))
    elif not named:
        write()
    if browser.CHROMIUM is None:
        sys.exit(browser.NEEDED.kwargs["reason"])
    with browser.browser() as page:
        for path in named or sorted(PAGES.glob("*.html")):
            sys.stdout.write(f"{page_times(page, path)}\n")
        if not named:
            picture(page)


def write() -> None:
    """Compile the networks, and write their pages."""
    PAGES.mkdir(exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in NETWORKS:
        neocpu("compile", name, "-o", f"{name}.so")
        run = ("--trace", f"{name}.json") if PROFILE else ()
        if run:
            neocpu("run", f"{name}.so", "--repeat", "50", *run)
        neocpu("explain", f"{name}.so", "--html", PAGES / f"{name}.html", *PROFILE, *run)
    # Both use the same records, so predictions have the same costs.
    neocpu("compile", "resnet50", "--opt", "conv-layout", "-o", "conv-layout.so")
    change = PAGES / "resnet50-layouts.html"
    neocpu("explain", "conv-layout.so", "resnet50.so", "--html", change, *PROFILE)
    records = BUILD / "records.jsonl"
    records.unlink(missing_ok=True)
    known = ("--only-db", "--db", records.name, "--budget", BUDGET)
    neocpu("tune", TUNED, *known, "--html", PAGES / f"tuning-{TUNED}.html")
    compared = PAGES / "errors-squeezenet1_0.html"
    neocpu("compile", TUNED, "--only-db", "--db", records.name, "-o", f"{TUNED}.so")
    neocpu("compare", TUNED, f"{TUNED}.so", "--html", compared)


def neocpu(*arguments: object) -> None:
    command = [sys.executable, "-m", "neocpu", *map(str, arguments), "--quiet"]
    subprocess.run(command, cwd=BUILD, check=True, stdout=subprocess.DEVNULL)


def picture(page: browser.Page) -> None:
    """Draw the README's picture: the network, with one operator selected."""
    page.open(PAGES / "resnet50.html", 1300, 880)
    page.value("document.getElementById('find').focus()")
    for letter in SHOWN:
        page.press(letter)
    page.press("Enter")
    find = "document.getElementById('find')"
    page.value(f"{find}.value = ''; {find}.dispatchEvent(new Event('input')); {find}.blur()")
    page.picture(ROOT / "docs" / "page.png", whole=False)


if __name__ == "__main__":
    main()
