"""Random streams: secure by default, repeatable only on request, and silent about themselves."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.patience import HANG_S
from tpmdp.noise.source import seeded_source, system_source


def test_system_streams_differ_and_are_secure() -> None:
    one, two = system_source(), system_source()
    assert one.secure
    assert not np.array_equal(one.words(8), two.words(8))
    assert not np.array_equal(one.words(8), one.words(8))


def test_seeded_streams_repeat_and_are_marked() -> None:
    assert np.array_equal(seeded_source(5).words(100), seeded_source(5).words(100))
    assert not np.array_equal(seeded_source(5).words(8), seeded_source(6).words(8))
    assert not seeded_source(5).secure


def test_a_stream_does_not_depend_on_how_it_is_cut() -> None:
    whole, parts = seeded_source(9).words(1000), seeded_source(9)
    assert np.array_equal(whole, np.concatenate([parts.words(n) for n in (1, 0, 499, 500)]))


@pytest.mark.parametrize("source", [system_source(), seeded_source(123456789)])
def test_nothing_is_said_and_nothing_can_be_copied(source: object) -> None:
    assert repr(source) == str(source) in ("NoiseSource(secure)", "NoiseSource(for tests only)")
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or stored"):
            copying(source)
    for field in ("seed", "secure"):
        with pytest.raises(AttributeError):
            setattr(source, field, True)


@pytest.mark.process
def test_a_forked_process_cannot_draw_the_same_noise() -> None:
    program = (
        "import os; from tpmdp.noise.source import system_source; s = system_source(); pid = os.fork()\n"
        "if pid: os._exit(os.waitpid(pid, 0)[1] >> 8)\n"
        "try: s.words(1)\nexcept RuntimeError: os._exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=HANG_S, check=False).returncode == 7


def test_words_are_balanced() -> None:
    words = seeded_source(1).words(20_000)
    ones = int(np.unpackbits(words.view(np.uint8)).sum())
    assert abs(ones - 640_000) < 5 * np.sqrt(320_000)
