"""Functions of shared arrays. Each is named "module:function", so that every party's process can import it.

A function gets MPyC's runtime, the parties' inputs as secure arrays of one dimension (None for a party without input)
and its parameters. It returns one secure array of the grid's dimension, in grid steps. Only the numbers are secret: no
shape and no branch may depend on them. A function must not open anything itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from tpmdp.engines.direct.gram_shape import GramShape
from tpmdp.engines.direct.job import Parameters
from tpmdp.errors import InputError

Secure = Any  # a secure integer array of MPyC
Function = Callable[[Any, Sequence[Secure], Parameters], Secure]


def load_function(name: str) -> Function:
    """Import the function with this name.

    >>> load_function("tpmdp.engines.mpyc.functions:total").__name__
    'total'
    """
    module, _, attribute = name.partition(":")
    try:
        function: Function | None = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        function = None
    if not callable(function):
        raise InputError("function", name, "cannot be imported", "name it as module:function, installed everywhere")
    return function


def total(mpc: Any, inputs: Sequence[Secure], parameters: Parameters) -> Secure:
    """The sum of all inputs. It needs no messages."""
    del mpc, parameters
    present = _present(inputs)
    result = present[0]
    for each in present[1:]:
        result = result + each
    return result


def maximum(mpc: Any, inputs: Sequence[Secure], parameters: Parameters) -> Secure:
    """The largest number at each position, over the parties with input; compared in pairs, to need few rounds."""
    del parameters
    present = _present(inputs)
    while len(present) > 1:
        odd = present[len(present) // 2 * 2 :]
        present = [mpc.np_maximum(a, b) for a, b in zip(present[::2], present[1::2], strict=False)] + odd
    return present[0]


def gram(mpc: Any, inputs: Sequence[Secure], parameters: Parameters) -> Secure:
    """Inner products between columns of different parties, after numbers that each party computed alone.

    Parameters: `records`; for each party the number of its `columns` and of its `local` numbers; `scale`, a factor of
    the products. A party's input is its local numbers, then its columns one after the other. The result is all local
    numbers, party by party, then for every two parties i < j all columns of i times all of j, row by row.
    Shares are multiplied locally; only the sums of products are reshared, all at once.
    """
    shape = GramShape(parameters)
    kind = next(type(each) for each in inputs if each is not None)

    async def compute(*present: Secure) -> Any:
        await mpc.returnType((kind, (shape.dimension,)))
        shares = iter(await mpc.gather(list(present)))
        values = [next(shares).value if size else np.zeros(0, dtype=object) for size in shape.sizes]
        columns = [
            value[local:].reshape(count, shape.records)
            for value, local, count in zip(values, shape.local, shape.columns, strict=True)
        ]
        products = [(columns[i] @ columns[j].T).reshape(-1) for i, j in combinations(range(len(values)), 2)]
        field = kind.sectype.field
        sums = await mpc._reshare(field.array(np.concatenate(products) * shape.scale))
        alone = [value[:local] for value, local in zip(values, shape.local, strict=True)]
        return field.array(np.concatenate([*alone, sums.value]))

    compute.__annotations__.clear()  # MPyC takes them for secure types
    return mpc.coroutine(compute)(*(each for each in inputs if each is not None))


def _present(inputs: Sequence[Secure]) -> list[Secure]:
    """The inputs that are present; adding or comparing needs them all of one length."""
    present = [each for each in inputs if each is not None]
    lengths = sorted({each.shape[0] for each in present})
    if len(lengths) != 1:
        raise InputError(
            "lengths of inputs", lengths, "must be one and the same", "give vectors of one length, or none"
        )
    return present
