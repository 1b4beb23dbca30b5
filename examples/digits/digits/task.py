"""Handwritten digits and a small model: softmax regression on the low frequencies of 8 x 8 images. Numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES = 10
FEATURES = 28
STEPS, RATE = 5, 4.0  # of a client in a round; a step sees all its images


@dataclass(frozen=True, eq=False)
class Digits:
    """Features and labels of the images that clients have, and of those that the model is tested with."""

    x: Floats
    y: Ints
    test_x: Floats
    test_y: Ints


@cache
def digits() -> Digits:
    """Scikit-learn's 1797 digits, a quarter of them for testing."""
    read = load_digits()
    parts = train_test_split(features(read.images), read.target, test_size=0.25, random_state=0, stratify=read.target)
    x, test_x, y, test_y = parts
    return Digits(x, y, test_x, test_y)


def features(images: Floats) -> Floats:
    """The 27 lowest frequencies as in JPEG, without the constant one, at length 1, and a constant. No data chose them.

    >>> features(np.ones((2, 8, 8))).shape
    (2, 28)
    """
    frequency, place = np.mgrid[:8, :8]
    waves = np.cos(np.pi * (2 * place + 1) * frequency / 16) * np.where(frequency == 0, 1, np.sqrt(2))
    found = np.einsum("ka,nab,lb->nkl", waves, images, waves)[:, (frequency + place > 0) & (frequency + place <= 6)]
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return np.hstack([found, np.full((len(found), 1), 0.3)])


def deal(clients: int, seed: int = 0, sorted_by_digit: bool = False) -> Ints:
    """Which images each client has, one row a client; `sorted_by_digit` gives the first clients mostly small digits."""
    generator, labels = np.random.default_rng([seed, 7]), digits().y
    order = generator.permutation(len(labels))
    if sorted_by_digit:
        order = order[np.argsort(labels[order] + generator.normal(0, 2.0, len(labels)))]
    return order[: len(labels) // clients * clients].reshape(clients, -1)


def train(model: Floats, x: Floats, y: Ints, steps: int = STEPS) -> Floats:
    """The model after a few steps on own images; works for one client, and for many at once (one more axis)."""
    wanted = np.eye(CLASSES)[y]
    for _ in range(steps):
        scores = x @ model
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        model = model - RATE * np.swapaxes(x, -1, -2) @ (shares - wanted) / x.shape[-2]
    return model


def initial_model() -> Floats:
    """Where all trainings start."""
    return np.zeros((FEATURES, CLASSES))


def right(model: Floats) -> NDArray[np.bool_]:
    """For every test image whether the model names its digit; for many models at once, one row a model."""
    return np.asarray((digits().test_x @ model).argmax(axis=-1) == digits().test_y)


def accuracy(model: Floats) -> float:
    """The share of test images that the model names right."""
    return float(right(model).mean())
