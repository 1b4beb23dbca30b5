"""Random Hamiltonian cycles: how many keep the honest parties connected, and how they are drawn from a seed.

All parties must get the same number and the same cycles, so both are computed in whole numbers.
Theory, "The graph of a group".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from math import factorial, perm
from typing import Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.errors import InputError

SEED_BYTES: Final = 32
SAFETY_BITS: Final = 128  # the honest parties are connected except with probability 2**-128
_MANTISSA_BITS: Final = 256
_GUARD_BITS: Final = 64
_LABEL: Final = b"tpmdp mask graph 1"


@lru_cache(maxsize=256)
def cycles_needed(size: int, colluders: int, bits: int = SAFETY_BITS) -> int:
    """The least number of random cycles for which the bound on a disconnected graph is at most 2**-bits.

    Of `size` parties, `colluders` fixed ones are removed; the others must be connected. The bound is rounded up.

    >>> cycles_needed(950, 500), cycles_needed(9500, 5000)
    (74, 76)
    >>> cycles_needed(950, 1)
    1
    """
    if size < 1:
        raise InputError("size", size, "must be at least 1", "name the parties of the group")
    if not 0 <= colluders < size:
        raise InputError("colluders", colluders, f"must be from 0 to {size - 1}", "leave an honest party")
    if bits < 1:
        raise InputError("bits", bits, "must be at least 1", f"use {SAFETY_BITS}")
    honest = size - colluders
    chance = cache(lambda inside, outside: isolation(colluders, inside, outside))
    too_few, enough = 0, 1
    while not _connects(honest, chance, enough, bits=bits):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if _connects(honest, chance, middle, bits=bits):
            enough = middle
        else:
            too_few = middle
    return enough


def isolation(colluders: int, inside: int, outside: int) -> Fraction:
    """The chance q that a random cycle through all has no edge between `inside` and `outside` fixed honest parties.

    The sum over the number of runs of the theory, exactly, by Horner's scheme on the ratios of successive terms.

    >>> isolation(2, 1, 2), isolation(1, 1, 2)
    (Fraction(1, 6), Fraction(0, 1))
    """
    if colluders < 2:
        return Fraction(0)
    others = colluders + inside + outside - 1
    numerator = denominator = 1
    for runs in range(min(inside, colluders - 1) - 1, 0, -1):
        up = (colluders - runs) * (inside - runs) * (colluders - 1 - runs)
        down = (runs + 1) * runs * (others - inside - runs)
        numerator, denominator = down * denominator + up * numerator, down * denominator
    numerator *= colluders * (colluders - 1) * factorial(inside)
    return Fraction(numerator, denominator * perm(others, inside + 1))


def _connects(honest: int, chance: Callable[[int, int], Fraction], cycles: int, *, bits: int) -> bool:
    """Whether the sum over all m of C(honest, m) q(m)**cycles, rounded up, is at most 2**-bits.

    The sum ends as soon as a bound on its rest is small: a chance falls if there are more parties inside or outside.
    """
    unit, limit = bits + _GUARD_BITS, 1 << _GUARD_BITS
    half = honest // 2
    total, ways = 0, 1
    for inside in range(1, half + 1):
        ways = ways * (honest - inside + 1) // inside
        total += product_up(ways << unit, chance(inside, honest - inside), cycles)
        if total > limit:
            return False
        rest = product_up(1 << honest + unit, chance(inside + 1, honest - half), cycles) if inside < half else 0
        if total + rest <= limit:
            return True
    return True  # fewer than two honest parties: nothing to cut


def product_up(factor: int, base: Fraction, exponent: int) -> int:
    """factor * base**exponent, rounded up: a whole number that is not smaller, and hardly larger.

    >>> product_up(1000, Fraction(1, 3), 2), product_up(8, Fraction(1, 2), 3)
    (112, 1)
    """
    shift = _MANTISSA_BITS + base.denominator.bit_length() - base.numerator.bit_length()
    first = -(-(base.numerator << shift) // base.denominator)
    mantissa, places = 1, 0  # the power so far is at most mantissa / 2**places
    for digit in f"{exponent:b}":
        mantissa, places = mantissa * mantissa, 2 * places
        if digit == "1":
            mantissa, places = mantissa * first, places + shift
        excess = max(mantissa.bit_length() - _MANTISSA_BITS, 0)
        mantissa, places = -(-mantissa >> excess), places - excess
    return -(-factor * mantissa >> places)


def draw_cycles(seed: bytes, count: int, size: int) -> IntArray:
    """`count` cycles through ranks 0 to size - 1, one per row: the ranks in the order of the cycle.

    Each rank has a key of 64 bits from SHAKE-256, and the cycle sorts ranks by key, equal keys by rank.

    >>> draw_cycles(bytes(32), 2, 5)
    array([[3, 0, 2, 4, 1],
           [0, 4, 1, 2, 3]])
    """
    if len(seed) != SEED_BYTES:
        raise InputError("seed", f"{len(seed)} bytes", f"must have {SEED_BYTES} bytes", "hash what it depends on")
    cycles = np.empty((count, size), dtype=np.int64)
    for number, cycle in enumerate(cycles):
        stream = hashlib.shake_256(_LABEL + seed + number.to_bytes(8, "big")).digest(8 * size)
        cycle[:] = np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
    return cycles
