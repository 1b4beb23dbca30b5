"""What two parties of a session compute together, and where it goes in the result; public, and the same for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tpmdp.engines.direct.gram_shape import GramShape


@dataclass(frozen=True)
class PairTask:
    """A function of the inputs of `left` and `right`, times `scale`, plus the noise of both if `noise`."""

    left: int
    right: int
    file: Path
    function: str
    shapes: tuple[tuple[int, ...], ...]
    start: int  # of its part of the result
    size: int
    scale: int = 1
    noise: bool = False

    def plain(self) -> dict[str, Any]:
        """What SPU's process is told."""
        shapes = [list(shape) for shape in self.shapes]
        return {
            "file": str(self.file),
            "function": self.function,
            "shapes": shapes,
            "scale": self.scale,
            "size": self.size,
        }


def gram_tasks(shape: GramShape, file: Path, function: str) -> list[PairTask]:
    """The products of every two parties that have columns; each entry of the result belongs to one of them.

    They are in rounds, as in a tournament: no party is in two pairs of a round. All parties keep to this order, so none
    waits for another without end.

    >>> shape = GramShape({"records": 10, "columns": [1, 2, 0, 1], "local": [3, 0, 0, 0], "scale": 1})
    >>> [(task.left, task.right, task.start, task.size) for task in gram_tasks(shape, Path("f"), "gram")]
    [(0, 3, 5, 1), (0, 1, 3, 2), (1, 3, 6, 2)]
    """
    tasks, start, count = [], sum(shape.local), len(shape.columns)
    for left, right in combinations(range(count), 2):
        rows, columns = shape.columns[left], shape.columns[right]
        if rows * columns:
            shapes = ((rows, shape.records), (shape.records, columns))
            whole = PairTask(left, right, file, function=function, shapes=shapes, start=start, size=rows * columns)
            tasks.append(replace(whole, scale=shape.scale))
        start += rows * columns
    return sorted(tasks, key=lambda task: round_of(task.left, task.right, count))


def round_of(left: int, right: int, count: int) -> int:
    """The round in which two of so many parties meet, left < right.

    >>> sorted(round_of(left, right, 4) for left, right in combinations(range(4), 2))
    [0, 0, 1, 1, 2, 2]
    """
    rounds = count - 1 if count % 2 == 0 else count
    return 2 * left % rounds if right == rounds else (left + right) % rounds
