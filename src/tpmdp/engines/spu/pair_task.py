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
        return {"file": str(self.file), "function": self.function, "shapes": shapes, "scale": self.scale}


def gram_tasks(shape: GramShape, file: Path, function: str) -> list[PairTask]:
    """The products of every two parties that have columns, in the order of the result.

    >>> shape = GramShape({"records": 10, "columns": [1, 2, 0, 1], "local": [3, 0, 0, 0], "scale": 1})
    >>> [(task.left, task.right, task.start, task.size) for task in gram_tasks(shape, Path("f"), "gram")]
    [(0, 1, 3, 2), (0, 3, 5, 1), (1, 3, 6, 2)]
    """
    tasks, start = [], sum(shape.local)
    for left, right in combinations(range(len(shape.columns)), 2):
        rows, columns = shape.columns[left], shape.columns[right]
        if rows * columns:
            shapes = ((rows, shape.records), (shape.records, columns))
            whole = PairTask(left, right, file, function=function, shapes=shapes, start=start, size=rows * columns)
            tasks.append(replace(whole, scale=shape.scale))
        start += rows * columns
    return tasks
