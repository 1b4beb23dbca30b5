"""The relay: a mailbox over HTTP that need not be trusted. `server` runs it, `client` talks to it, `wire` is shared."""
