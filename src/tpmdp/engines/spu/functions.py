"""Functions of two inputs in JAX, as SPU's interpreter loads them: nothing of tpmdp can be imported here.

A function gets two arrays of whole numbers of 64 bits, one per party, and returns one array of whole numbers of one
dimension. Only the numbers are secret: no shape and no branch may depend on them.
"""

from __future__ import annotations

from typing import Any


def gram(left: Any, right: Any) -> Any:
    """The inner products of all rows of one party with all columns of the other, one after the other."""
    import jax.numpy as jnp

    return jnp.matmul(left, right).reshape(-1)


def maximum(left: Any, right: Any) -> Any:
    """The larger number at each position."""
    import jax.numpy as jnp

    return jnp.maximum(left, right)


def count_larger(left: Any, right: Any) -> Any:
    """How many records have a larger number in the first column of one party than in the first of the other."""
    import jax.numpy as jnp

    return jnp.sum(left[0] > right[0]).reshape(1)
