#!/bin/sh
# A party of the example: makes its key, hands out the public line, waits for the study and joins.
# Real parties do the same by hand: docs/how-to/running.md.
set -eu
name=$1
state=${STATE:-/state}
exchange=${EXCHANGE:-/exchange}
data=${DATA:-/data}
key=$state/$name.key
[ -e "$key" ] || tpmdp keygen "$name" --out "$key" >/dev/null
tpmdp key show "$key" >"$exchange/$name.new"
mv "$exchange/$name.new" "$exchange/$name.line"
seconds=0
until [ -e "$exchange/study.toml" ]; do
    [ "$seconds" -lt 300 ] || { echo "no study after 5 minutes: look at the author" >&2; exit 3; }
    sleep 1
    seconds=$((seconds + 1))
done
exec tpmdp join "$exchange/study.toml" --as "$name" --key "$key" --data "$data/$name.csv" \
    --relay "$TPMDP_RELAY" --plain-http
