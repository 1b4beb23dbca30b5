"""A small app that test_deployment runs on a real deployment."""
