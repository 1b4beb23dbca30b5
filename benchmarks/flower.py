"""tpmdp on Flower beside Flower's SecAgg+, in one run: `make bench-flower`.

Every training is a process of its own; peers take turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

OURS, PEER = "benchmarks.flower_tpmdp", "benchmarks.flower_secagg"
SPARSE = {"num_shares": 0.21}
TIMEOUT_S = 600.0
HEAD = """# Measures: Flower

One run of `make bench-flower`, which rewrites this page: 100 clients in a Flower simulation on two cores, the sum of
their vectors by tpmdp (`PrivateStrategy`: any 11 of server and clients may collude, 5 may drop out, real noise, ledgers
on disk) and by Flower's SecAgg+ (`num_shares=0.21`, its sparse setting; no noise, nothing kept). Peers take turns;
absolute times say little, machines are shared. Ray's start is not counted. Bytes are serialised Flower messages of one
client, without the model itself.

"""


def run(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a child process tells."""
    text = json.dumps(options)
    print(f"{module} {text} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", module, text]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout or b'{"completed": false, "problem": "no output"}')
    except subprocess.TimeoutExpired:
        found = {"completed": False, "problem": f"more than {TIMEOUT_S:g} s"}
    print(f"  {found}", file=sys.stderr, flush=True)
    return found


def compared(clients: int, entries: int, repeats: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Both, in turns."""
    ours, peer = [], []
    for _ in range(repeats):
        ours.append(run(OURS, {"clients": clients, "entries": entries}))
        peer.append(run(PEER, {"clients": clients, "entries": entries, **SPARSE}))
    return ours, peer


def median(found: list[dict[str, Any]], field: str) -> float:
    """Of the runs that were completed."""
    values = [one[field] for one in found if one.get(field) is not None]
    return statistics.median(values) if values else float("nan")


def sizes(rows: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]]) -> str:
    """The table of time, bytes and error."""
    lines = [
        "| entries | | seconds, from nothing | further round | bytes up | bytes down | error of the sum | counted |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for entries, (ours, peer) in rows.items():
        exact = "none on the grid" if all(one.get("exact") for one in ours) else "NOT EXACT"
        for name, found, error in (("tpmdp", ours, exact), ("SecAgg+", peer, f"{100 * median(peer, 'error'):.1g}")):
            further = f"{median(found, 'second_round'):.2f}" if name == "tpmdp" else "the same"
            traffic = f"{median(found, 'bytes_up'):,.0f} | {median(found, 'bytes_down'):,.0f}"
            first = f"| {entries:,} | {name} | {median(found, 'seconds'):.2f} | {further}"
            lines.append(f"{first} | {traffic} | {error} | {median(found, 'counted'):.0f} |")
    return "\n".join(lines) + "\n"


def ratios(rows: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]], repeats: int) -> str:
    """How many times faster, run against run."""
    lines = []
    for entries, (ours, peer) in rows.items():
        pairs = zip(ours, peer, strict=True)
        found = sorted(b["seconds"] / a["seconds"] for a, b in pairs if a.get("seconds") and b.get("seconds"))
        if found:
            spread = f"{found[0]:.2f} to {found[-1]:.2f} in {len(found)} of {repeats} pairs"
            wanted = "; wanted: at least 2" if entries == min(rows) else ""
            lines.append(
                f"- {entries:,} entries: {statistics.median(found):.2f} times as fast as SecAgg+ ({spread}{wanted})."
            )
    return "\n".join(lines) + "\n"


def failures(clients: int, entries: int) -> str:
    """The table of what happens when clients fail."""
    count = 5
    lines = ["| 5 clients fail at | tpmdp | SecAgg+ |", "| --- | --- | --- |"]
    stages = (("announce", "setup"), ("", "share_keys"), ("submit", "collect_masked_vectors"), ("reveal", "unmask"))
    for our_stage, peer_stage in stages:
        cells = []
        for module, stage, more in ((OURS, our_stage, {}), (PEER, peer_stage, SPARSE)):
            if not stage:
                cells.append("(no such step)")
                continue
            fail = {"stage": stage, "count": count}
            found = run(module, {"clients": clients, "entries": entries, "fail": fail, **more})
            cells.append(f"{stage}: {told(found)}")
        lines.append(f"| {our_stage or '-'} / {peer_stage} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def told(found: dict[str, Any]) -> str:
    """One outcome in words."""
    if not found["completed"]:
        return f"no answer ({str(found.get('problem'))[:90].replace('|', '/')})"
    exact = {True: ", exact", False: ", NOT EXACT", None: ""}[found.get("exact")]
    tries = "" if found.get("tries", 1) == 1 else f", in session {found['tries']}: the first one is void, and charged"
    return f"{found['counted']} counted{exact}, {found['seconds']:.1f} s{tries}"


def main() -> None:
    """Everything, and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flower")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    rows = {entries: compared(given.clients, entries, given.repeats) for entries in (1000, 100_000)}
    parts = [HEAD, sizes(rows), "\n", ratios(rows, given.repeats), "\n## When clients fail\n\n"]
    parts += [f"{given.clients} clients, 1,000 entries.\n\n", failures(given.clients, 1000)]
    packages = ", ".join(f"{name} {version(name)}" for name in ("flwr", "ray", "cryptography", "numpy"))
    text = "".join(parts) + f"\nMeasured with Python {sys.version.split()[0]}, {packages}.\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
