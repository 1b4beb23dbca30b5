"""The inner loop of the discrete Gaussian sampler: integers only, compiled by Numba if it is installed.

Karney (2016), Algorithm D, for whole sigma: k >= 0 with weight e^(-k^2/2), j uniform below sigma, a sign; the value
sign (k sigma + j) is kept with probability e^(-x (2k + x) / 2), x = j / sigma. Every decision compares integers
exactly: a tie is settled by drawing more bits, and if 512 bits do not settle it the sampler stops instead of guessing.
Theory, "Exact noise". Every number is an unsigned 64-bit integer, so that compiled and plain Python agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tpmdp.noise.source import Words

Fill = Callable[[Any, int, int, Any, Any], tuple[int, int, int]]

DIGITS: Final = 8  # 64-bit words to which constants are known
ROWS: Final = 26  # k is at most 25: larger ones together have weight below 2**-480
RESERVE: Final = 64  # words that must be left before a value is started
UNDECIDED: Final = -1


@lru_cache(maxsize=1)
def compiled_fill() -> Fill:
    """`fill` compiled by Numba, which takes a second or more to load; plain `fill`, with the same draws, without Numba.

    >>> callable(compiled_fill())
    True
    """
    try:
        from numba import njit
    except ImportError:
        return fill
    compiled: Fill = njit(cache=True, nogil=True)(fill)
    return compiled


def exp_constants() -> Words:
    """Rows of 512-bit fractions: row k < ROWS is P(K <= k) for weights e^(-k^2/2), the last row is e^-1.

    Computed in integers with 256 spare bits; rows are rounded down, and the spare bits show that no digit is in doubt.

    >>> float(exp_constants()[ROWS, 0]) / 2**64
    0.36787944117144233
    """
    spare = 256
    bits = 64 * DIGITS + spare
    unit = 1 << bits

    def exp_minus(numerator: int, denominator: int) -> int:
        """e^-(numerator/denominator) as 1 / e^(...), within a few units."""
        total, term, k = 0, unit, 0
        while term:
            total += term
            k += 1
            term = term * numerator // (denominator * k)
        return unit * unit // total

    # e^(-k^2/2) = e^(-(k-1)^2/2) e^(-(2k-1)/2). Every product is cut by less than a unit: after 56 of them, thousands.
    inverse, factor, weights = exp_minus(1, 1), exp_minus(1, 2), [unit]
    while len(weights) < ROWS + 30:
        weights.append(weights[-1] * factor >> bits)
        factor = factor * inverse >> bits
    whole = sum(weights)
    rows, running = [], 0
    for weight in weights[:ROWS]:
        running += weight
        rows.append(running * unit // whole)
    rows.append(inverse)
    doubt = 1 << (spare - 64)  # every row is exact to far better than this
    for row in rows:
        assert (row + doubt) >> spare == (row - doubt) >> spare
    digits = [[(row >> (bits - 64 * (i + 1))) & (2**64 - 1) for i in range(DIGITS)] for row in rows]
    return np.array(digits, dtype=np.uint64)


def fill(out: Any, start: int, sigma: int, words: Any, constants: Any) -> tuple[int, int, int]:
    """Fill out[start:] with draws until done or out of words: (next index, words used, 0 or UNDECIDED).

    The words of an unfinished value count as unused and must be given again first: dropping them would favour values
    that take few words.
    """
    zero, unit, two = np.uint64(0), np.uint64(1), np.uint64(2)
    half, low_mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    s = np.uint64(sigma)
    denominator = two * s * s
    width = 0
    while (denominator >> np.uint64(width)) > zero:
        width += 1
    position = 0
    count = len(words)
    for index in range(start, len(out)):
        begin = position
        while True:  # one candidate per round
            if position + RESERVE > count:
                return index, begin, 0
            # k: the first row whose probability exceeds the uniform number with binary digits words[position:].
            k, used = 0, 1
            while k < ROWS:
                i = 0
                while i < DIGITS and words[position + i] == constants[k, i]:
                    i += 1
                if i == DIGITS:
                    return index, begin, UNDECIDED
                used = max(used, i + 1)
                if words[position + i] < constants[k, i]:
                    break
                k += 1
            if k == ROWS:
                return index, begin, UNDECIDED
            position += used
            # j uniform below sigma (Lemire's method on 32 bits), and a sign from another bit of the same word.
            while True:
                if position >= count:
                    return index, begin, 0
                word = words[position]
                position += 1
                product = (word >> half) * s
                low = product & low_mask
                if low >= s or low >= (low_mask - s + unit) % s:
                    break
            j = product >> half
            negative = (word & unit) == unit
            if negative and k == 0 and j == zero:
                continue  # zero has no sign
            # Keep with probability e^-(whole + rest/denominator).
            numerator = j * (two * np.uint64(k) * s + j)
            whole = numerator // denominator
            rest = numerator - whole * denominator
            keep = True
            while keep and whole > zero:
                i = 0
                while i < DIGITS and position + i < count and words[position + i] == constants[ROWS, i]:
                    i += 1
                if position + i >= count:
                    return index, begin, 0
                if i == DIGITS:
                    return index, begin, UNDECIDED
                keep = words[position + i] < constants[ROWS, i]
                position += i + 1
                whole -= unit
            # e^-x is the chance that von Neumann's run of successes with chances x, x/2, x/3, ... has even length.
            length = 0
            going = keep and rest > zero
            while going:
                divisor = denominator * np.uint64(length + 1)
                wide = 0
                while ((length + 1) >> wide) > 0:
                    wide += 1
                shift = 63 - width - wide
                if shift < 1:
                    return index, begin, UNDECIDED
                left = np.uint64(shift)
                remainder = rest
                while True:  # compare random digits with those of rest/divisor, `shift` bits at a time
                    if position >= count:
                        return index, begin, 0
                    digit = words[position] >> np.uint64(64 - shift)
                    position += 1
                    scaled = remainder << left
                    quotient = scaled // divisor
                    remainder = scaled - quotient * divisor
                    if digit < quotient:
                        length += 1
                        break
                    if digit > quotient or remainder == zero:
                        going = False
                        break
            if keep and length % 2 == 0:
                magnitude = np.int64(np.uint64(k) * s + j)
                out[index] = -magnitude if negative else magnitude
                break
    return len(out), position, 0
