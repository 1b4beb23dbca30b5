"""The paper's sentences, held against what was measured."""
