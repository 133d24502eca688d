#!/usr/bin/env bash
# Makes the release files twice, the second time from a copy of the tree in
# another directory, and fails when a byte differs.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/dist.sh "$work/first" >/dev/null
git clone -q --no-hardlinks . "$work/copy"
git diff HEAD --binary | (cd "$work/copy" && git apply --allow-empty)
(cd "$work/copy" && touch -d 2001-01-01 config.example.toml && packaging/dist.sh "$work/second") >/dev/null
diff -r "$work/first" "$work/second"
cat "$work/first/SHA256SUMS"
echo "dist-check: two runs, same bytes"
