"""Nothing of this app is a test."""

collect_ignore_glob = ["*"]
