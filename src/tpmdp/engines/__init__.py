"""Engines carry a session through: one contract, several ways to move the bytes."""
