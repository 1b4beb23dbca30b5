"""Experiments: populations, and the paper's figures. Nothing in the core imports this."""
