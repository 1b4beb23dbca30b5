"""A study from its file to the answer: model, session, release, and the ways to run it."""
