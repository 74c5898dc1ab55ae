#!/usr/bin/env bash
# The unit files parse, and concertd's sandbox keeps its exposure below 2.0 of 10 (systemd-analyze's score; a unit
# without a sandbox has 9.5). Skipped (77) where there is no systemd-analyze.
#
#   systemd_units_test.sh BUILD_DIR
set -euo pipefail

command -v systemd-analyze >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$1" --prefix "$work/prefix" --component concertd >/dev/null
sysusers=$work/prefix/lib/sysusers.d/concert.conf
# NVIDIA's programs are not here; verify wants programs that exist.
cp "$work"/prefix/lib/systemd/system/*.service "$work"
sed -i 's|/usr/bin/nvidia-cuda-mps-control|/bin/true|' "$work/concert-mps.service"

SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no --recursive-errors=no "$work"/*.service >"$work/findings" 2>&1 || {
  cat "$work/findings"
  exit 1
}
# verify exits 0 on unknown keys and only warns.
if grep -E 'concertd|concert-mps' "$work/findings"; then exit 1; fi

systemd-analyze security --offline=true --threshold=20 --no-pager "$work/concertd.service" >"$work/score" || {
  grep -vE '^✓' "$work/score"
  exit 1
}
tail -1 "$work/score"

if command -v systemd-sysusers >/dev/null; then
  mkdir -p "$work/root/etc"
  systemd-sysusers --root="$work/root" - <"$sysusers" >/dev/null
  grep -q '^concert:' "$work/root/etc/passwd"
  grep -q '^concert-admin:.*concert' "$work/root/etc/group"
  # No group that nothing asks for.
  [[ $(grep -c '^concert' "$work/root/etc/group") == 2 ]]
fi
