"""Pictures of every view of the page at three widths, for docs/how-to/page.md: `python -m tools.screenshots`.

It needs Chromium, Playwright and Pillow. A small session is run first, so that there is something to show.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tpmdp
from tpmdp.planning.plan_file import write_plan
from tpmdp.study.identity import write_key
from tpmdp.study.invitation import invitation
from tpmdp.study.sample import sample_columns

OUT = Path(__file__).parents[1] / "docs" / "images" / "page"
WIDTHS = {"wide": 1280, "tablet": 768, "phone": 390}
SHOWN = {
    "plan": "Plan",
    "study": "Study",
    "join": "Take part",
    "answer": "Take part",
    "verify": "Verify",
    "watch": "Watch",
}
COLOURS = 128
HEIGHT_MAX = 2400
CHROMIUM = "/usr/bin/chromium"
PARTIES = {"north": 0.5, "south": 1.0, "east": 1.0, "west": 2.0, "office": 3.0}


def start(*arguments: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A command of tpmdp, and the first lines that it prints."""
    command = [sys.executable, "-u", "-m", "tpmdp", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = 2 if arguments[0] == "page" else 1
    return process, [process.stdout.readline().strip() for _ in range(lines)]


def prepare(folder: Path, relay: str) -> None:
    """A study with keys, an invitation, data and a plan in the folder of north."""
    import csv

    import numpy as np

    builder = tpmdp.Study.new("flu season", threshold=2, receivers=["north", "office"], delta=1e-6, deadline="2h")
    for name, epsilon in PARTIES.items():
        builder = builder.party(name, epsilon=epsilon, records=400)
    study = builder.count("age", at_least=65).mean("days", low=0, high=30, name="stay").build()
    identities = {name: Ed25519PrivateKey.generate() for name in PARTIES}
    study = study.with_keys({name: key.public_key().public_bytes_raw() for name, key in identities.items()})
    (folder / "north.study.toml").write_text(invitation(study, "north", relay=relay), encoding="utf-8")
    others = folder / "others"
    others.mkdir()
    for name, key in identities.items():
        home = folder if name == "north" else others
        write_key(home / f"{name}.key", key)
        columns = sample_columns(study, name, np.random.default_rng(1))
        with (home / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(columns)
            rows.writerows(zip(*columns.values(), strict=True))
    write_plan(tpmdp.plan(study.spec()), folder / "plan.json")


def join(folder: Path, name: str, relay: str) -> None:
    """One of the other parties, by the command line."""
    home = folder / "others" / name
    files = ["--key", f"{home}.key", "--data", f"{home}.csv"]
    study = str(folder / "north.study.toml")
    command = [sys.executable, "-m", "tpmdp", "join", study, "--as", name, *files, "--relay", relay]
    subprocess.run(command, check=True, capture_output=True)


def shoot(window: Any, view: str) -> None:
    """The view as it is, at three widths, with few colours: the pictures are small files."""
    from PIL import Image

    shown = window.inner_text("nav [aria-current=page]")
    assert shown == SHOWN[view], f"{view} is to show {SHOWN[view]}, and shows {shown}"
    OUT.mkdir(parents=True, exist_ok=True)
    for width, pixels in WIDTHS.items():
        window.set_viewport_size({"width": pixels, "height": 900})
        window.wait_for_timeout(300)
        path = OUT / f"{view}-{width}.png"
        window.screenshot(path=path, full_page=True)
        with Image.open(path) as picture:
            cut = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, HEIGHT_MAX)))
            cut.quantize(COLOURS).save(path, optimize=True)
    window.set_viewport_size({"width": 1280, "height": 900})


def main() -> None:
    """Run a session with the page as one party, and take pictures on the way."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        relay_process, [line] = start("relay", "--port", "0", "--store", str(folder / "relay.sqlite"))
        relay = line.removeprefix("relay listening on ")
        prepare(folder, relay)
        process, [address, token] = start("page", "--folder", place, "--port", "0", "--no-browser")
        url = address.removeprefix("page on ")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1280, "height": 900})
        window.goto(url)
        window.fill("#secret", token.removeprefix("token: "))
        window.click("button")
        window.wait_for_selector("nav")
        window.goto(url + "/plan")
        shoot(window, "plan")
        window.goto(url + "/study")
        shoot(window, "study")
        window.goto(url + "/verify")
        window.set_input_files("#file", folder / "plan.json")
        window.wait_for_selector("#verdict h2")
        shoot(window, "verify")
        others = [threading.Thread(target=join, args=(folder, name, relay)) for name in list(PARTIES)[1:]]
        for thread in others:
            thread.start()
        window.goto(url + "/join")
        window.wait_for_selector("#agreed")
        shoot(window, "join")
        take_part(window)
        shoot(window, "answer")
        window.goto(url + "/watch")
        watch(window, relay)
        shoot(window, "watch")
        browser.close()
        for thread in others:
            thread.join()
        for each in (process, relay_process):
            each.terminate()
            each.wait()


def take_part(window: Any) -> None:
    """As north, until the answer is there."""
    window.check("#words-1")
    window.check("#agreed")
    window.click("button:text-is('Take part')")
    window.wait_for_selector("h2:text-is('The answer')")


def watch(window: Any, relay: str) -> None:
    """The session, as north sees it at the relay, and the relay, as its operator does."""
    window.select_option("#key-file", "north.key")
    window.fill("#relay", relay)
    window.click("text=Watch the session")
    window.wait_for_selector("#study-watch table")
    window.fill("#own-relay", relay)
    window.press("#own-relay", "Enter")
    window.wait_for_selector("#relay-watch table")


if __name__ == "__main__":
    main()
