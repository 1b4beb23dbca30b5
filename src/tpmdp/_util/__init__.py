"""Small tools that every layer may use; they know nothing of privacy."""
