"""The page in a real browser: `make bench-page`. From a moved slider to the drawn chart, sizes, and start-up.

Peers in the same run: a request of the same browser to the same server that computes nothing, and `tpmdp --help`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEAD = """# Measures: the page

One run of `make bench-page`, which rewrites this page. Chromium and the page share the machine.
Machines are shared, so absolute times say little: beside each is its ratio to a peer of the same
run.

"""
CHROMIUM = "/usr/bin/chromium"
MOVE = """async (value) => {
  const slider = document.getElementById('threshold'), chart = document.getElementById('curve');
  const start = performance.now();
  slider.value = value;
  const drawn = new Promise((done, fail) => {
    setTimeout(() => fail(new Error('the chart did not change in 20 seconds')), 20000);
    new MutationObserver((_, watch) => {
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
    }).observe(chart, {childList: true});
  });
  slider.dispatchEvent(new Event('input', {bubbles: true}));
  return await drawn;
}"""
SIZES = """['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))
  .map(each => [each.name, each.decodedBodySize])"""
PLAIN = """async () => {
  const start = performance.now();
  await (await fetch('/static/icon.svg')).text();
  return performance.now() - start;
}"""


def parties(count: int) -> str:
    """A list to paste."""
    return "\n".join(f"party_{place}, {(place % 8 + 1) / 4}, 1e-6, 1000, receives" for place in range(count))


def moved(window: Any, count: int, repeats: int) -> tuple[float, float]:
    """Medians of a moved slider and of a plain request, in milliseconds."""
    window.evaluate("document.querySelector('#parties details').open = true")
    window.fill("#pasted", parties(count))
    window.click("text=Use these")
    window.wait_for_selector(f"#name-{count - 1}", state="attached")
    window.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 200)))")
    ours, plain = [], []
    for place in range(repeats):
        ours.append(window.evaluate(MOVE, 1 + place % (count - 2)))
        plain.append(window.evaluate(PLAIN))
    return statistics.median(ours), statistics.median(plain)


def start_up(repeats: int) -> tuple[float, float]:
    """Seconds until the page listens, and of `tpmdp --help`."""
    ours, plain = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            with page(Path(folder)) as process:
                assert process.stdout is not None
                process.stdout.readline()
                ours.append(time.perf_counter() - start)
                process.terminate()
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "tpmdp", "--help"], check=True, capture_output=True)
        plain.append(time.perf_counter() - start)
    return statistics.median(ours), statistics.median(plain)


def page(folder: Path) -> subprocess.Popen[str]:
    """The page in its own process."""
    command = [sys.executable, "-u", "-m", "tpmdp", "page", "--folder", str(folder), "--port", "0", "--no-browser"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(counts: list[int], repeats: int) -> str:
    """The tables, as text."""
    from playwright.sync_api import sync_playwright

    rows = []
    with tempfile.TemporaryDirectory() as folder, page(Path(folder)) as process, sync_playwright() as playwright:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("page on ").strip()
        token = process.stdout.readline().removeprefix("token: ").strip()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        window = browser.new_page()
        window.goto(url)
        window.fill("#secret", token)
        window.click("button")
        window.goto(url + "/plan", wait_until="networkidle")
        loaded = {path.removeprefix(url): size for path, size in window.evaluate(SIZES)}
        for count in counts:
            rows.append((count, *moved(window, count, repeats)))
        browser.close()
        process.terminate()
    ours, plain = start_up(max(1, repeats // 4))
    lines = ["| parties | moved slider to drawn chart | against a request without work |", "| ---: | ---: | ---: |"]
    lines += [f"| {count:,} | {one:.0f} ms | {one / two:.1f}x |" for count, one, two in rows]
    total = sum(loaded.values())
    listed = ", ".join(f"{path} {size / 1000:.1f}" for path, size in sorted(loaded.items()))
    lines += ["", f"The first view loads {total / 1000:.1f} kB in {len(loaded)} files, not compressed:", f"{listed}."]
    lines += ["", f"Start-up: the page listens after {ours / plain:.1f} times what `tpmdp --help` takes."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--counts", default="5,50,1000")
    parser.add_argument("--repeats", type=int, default=21)
    options = parser.parse_args()
    text = measure([int(each) for each in options.counts.split(",")], options.repeats)
    print(text)
    if options.out is not None:
        options.out.write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
