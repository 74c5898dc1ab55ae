#!/usr/bin/env bash
# The first minutes of a user who has a bundle: the quickstart leaves a daemon running, a client of theirs reaches it
# with the lines that it printed, the tools show that client, and everything is gone when they say so.
#
#   quickstart_test.sh BUNDLE.tar.gz
set -euo pipefail
bundle=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$(mktemp -t concert-quickstart-test.XXXXXX)
cleanup() {
  eval "$(sed -n 's/^ *\(kill .* && rm -r .*\)$/\1/p' "$out")" 2>/dev/null || true
  rm -f "$out"
}
trap cleanup EXIT
fail() {
  echo "$*" >&2
  cat "$out" >&2
  exit 1
}

"$root/deploy/quickstart" --bundle "$bundle" --keep >"$out" 2>&1 || fail "the quickstart failed"
grep -q 'A modelled H200' "$out" || grep -q 'time_sliced' "$out" || fail "it does not show what sharing gains"

# Words that were printed for the user's shell: no more is needed.
eval "$(grep -E '^ *export CONCERT_SOCKET=' "$out")"
folder=$(dirname "$CONCERT_SOCKET") bin=$(dirname "$CONCERT_SOCKET")/bundle/bin
export CONCERT_LIBRARY=$folder/bundle/lib/libconcert.so.0
[[ -e $CONCERT_LIBRARY ]] || fail "the bundle has no libconcert.so.0"
result=$(PYTHONPATH=$root/client/python /usr/bin/python3 -B "$root/client/examples/minimal.py")
[[ $result == "y[0] = 16" ]] || fail "a client in Python has another result: $result"
"$bin/concertctl" status >>"$out" || fail "the daemon has gone"
"$bin/concertctl" top --count 1 >>"$out" || fail "top shows nothing"
for _ in {1..50}; do  # telemetry takes records every few milliseconds
  plan=$("$bin/concertctl" plans --last 1)
  [[ $plan != *GEMM* ]] || break
  sleep 0.1
done
[[ $plan == *GEMM* ]] || fail "the client's GEMM is in no plan: $plan"

stop=$(sed -n 's/^ *\(kill .* && rm -r .*\)$/\1/p' "$out")
daemon=$(sed -E 's/kill ([0-9]+) .*/\1/' <<<"$stop")
eval "timeout 30 bash -c '$stop'" || fail "this does not stop the daemon: $stop"
if kill -0 "$daemon" 2>/dev/null; then fail "the daemon is still there"; fi
[[ ! -e $folder ]] || fail "$folder is left"
