"""Why products are reshared before they are opened: what a curious party makes of a comparison in stock MPyC 0.11.

At the end of `a < b` MPyC opens e r, where e is a product of terms s - (c_j - r_j) + 3 (sum of earlier xors of the bits
of c and r), c is public, c - r = a - b modulo 2^l, and r is random. Only whether e = 0 may be learned. But everybody
gets all shares of e r: a polynomial E(x) R(x) of degree 2, of which party 1 also holds E(1). Its two roots give two
candidates for e = E(0), and from e and c the bits of r follow by meeting in the middle: a - b, from one comparison.
"""

from __future__ import annotations

from typing import Any


def candidates(seen: dict[str, Any], place: int) -> list[int]:
    """Both values e can have had."""
    p = seen["p"]
    y1, y2, y3 = (shares[place] for shares in seen["product"])
    square = (y3 - 2 * y2 + y1) * pow(2, -1, p) % p
    linear = (y2 - y1 - 3 * square) % p
    constant = (y1 - linear - square) % p
    inside = (linear * linear - 4 * square * constant) % p
    root = pow(inside, (p + 1) // 4, p)  # MPyC's primes are 3 modulo 4
    found = []
    for sign in (1, -1):
        zero = (sign * root - linear) * pow(2 * square, -1, p) % p
        slope = seen["e"][place] * pow(1 - zero, -1, p) % p
        found.append(-slope * zero % p)
    return found


def differences(seen: dict[str, Any], place: int, bits: int) -> set[int]:
    """What a - b can have been; nothing if e was 0, as in half of all comparisons."""
    p, c = seen["p"], seen["c"][place] % 2**bits
    wanted = candidates(seen, place)
    if 0 in wanted:
        return set()
    half = bits // 2
    digits = [c >> (bits - 1 - j) & 1 for j in range(bits)]

    def walk(places: range, xors: int, sign: int) -> list[tuple[int, int, int]]:
        """All products over these places: product, xors so far, bits of r."""
        states = [(1, xors, 0)]
        for j in places:
            states = [
                (e * (sign - digits[j] + r + 3 * xors) % p, xors + (digits[j] ^ r), r_bits << 1 | r)
                for e, xors, r_bits in states
                for r in (0, 1)
            ]
        return states

    found = set()
    for sign in (1, -1):
        for xors in range(half + 1):
            low = {e * (sign - 1 + 3 * last) % p: r for e, last, r in walk(range(half, bits), xors, sign)}
            for e, reached, high in walk(range(half), 0, sign):
                for each in wanted if reached == xors and e else []:
                    if (r := low.get(each * pow(e, -1, p) % p)) is not None:
                        found.add(((c - (high << (bits - half) | r) + 2 ** (bits - 1)) % 2**bits) - 2 ** (bits - 1))
    return found
