"""The relay: a mailbox over HTTP that need not be trusted.

Its own side: `server` runs `app`, which admits requests (`admission`, `limits`), reads them (`requests`), stores
messages (`store` in a `database`), wakes those that wait (`waiters`) and answers (`answers`). A party's side: `drive`
takes a session through its `mailbox`. Both sides share `wire`.
"""
