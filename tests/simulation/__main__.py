"""Play schedules: `python -m tests.simulation [--minutes M] [--schedules N] [--seed S]`; shrinks a failure."""

from __future__ import annotations

import argparse
import math
import sys
import time

from tests.simulation.schedule import Schedule, draw, play, shrink

PROGRESS_S = 30.0


def failures(schedule: Schedule) -> list[str]:
    """What is wrong with a run; an exception counts, too."""
    try:
        return play(schedule)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--schedules", type=int, default=None, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the next ones follow")
    given = parser.parse_args()
    began = shown = time.monotonic()
    seed = given.seed
    while seed - given.seed != given.schedules and time.monotonic() - began < 60 * given.minutes:
        schedule = draw(seed)
        wrong = failures(schedule)
        if wrong:
            smallest = shrink(schedule, lambda fewer: bool(failures(fewer)))
            print(f"seed {seed}: {wrong[0]}\n{smallest}")
            return 1
        seed += 1
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            print(f"{seed - given.seed} schedules, {shown - began:.0f} s", file=sys.stderr)
    seconds = time.monotonic() - began
    played = seed - given.seed
    print(f"{played} schedules from seed {given.seed}, no violation; {played / seconds:.1f} per second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
