#!/bin/sh
# The author of the example: waits for the public line of each party, and writes the study that all of them read.
set -eu
exchange=${EXCHANGE:-/exchange}
study=$1
seconds=0
shift
if [ ! -e "$exchange/study.toml" ]; then
    cp "$study" "$exchange/draft.toml"
    for name in "$@"; do
        until [ -e "$exchange/$name.line" ]; do
            [ "$seconds" -lt 300 ] || { echo "no public key of $name after 5 minutes: look at it" >&2; exit 3; }
            sleep 1
            seconds=$((seconds + 1))
        done
        tpmdp accept "$exchange/draft.toml" "$(cat "$exchange/$name.line")"
    done
    mv "$exchange/draft.toml" "$exchange/study.toml"
fi
tpmdp fingerprint "$exchange/study.toml"
