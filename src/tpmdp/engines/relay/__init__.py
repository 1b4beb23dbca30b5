"""The relay: a mailbox over HTTP that need not be trusted.

Its own side: `server` runs `app`, which admits requests (`admission`, `limits`), reads them (`uploads`, `requests`),
stores messages (`store` in a `database`), wakes those that wait (`waiters`), answers (`responses`) and counts what
happened (`journal`). A party's side: `drive` takes a session through its `mailbox`. Both sides share `wire`.
"""
