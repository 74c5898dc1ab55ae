#!/usr/bin/env bash
# The Debian packages, as an operator meets them: lintian finds no error; in a clean root of this system they install, the
# daemon starts as its unit starts it, an upgrade keeps the operator's configuration, and removing and purging leave
# what Debian wants left. Root, for the clean root; the system's mirror must answer.
#
#   packages_test.sh PACKAGES_DIR   where deploy/packages has put revisions 1 and 2
set -euo pipefail
packages=$1
work=$(mktemp -d -t concert-packages.XXXXXX)
root=$work/root
# Only what this test started: everything that runs with its root.
cleanup() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/root") == "$root" ]] && kill -KILL "${process#/proc/}" 2>/dev/null
  done
  rm -rf "$work"
}
trap cleanup EXIT

say() { printf '==> %s\n' "$*"; }
fail() {
  printf 'packages_test: %s\n' "$*" >&2
  exit 1
}
inside() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive HOME=/root chroot "$root" "$@"
}
apt_get() {
  inside apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" </dev/null >"$work/log" 2>&1 || fail "apt-get $*: $(tail -20 "$work/log")"
}
install_revision() {
  local files=("$root"/packages/*-"$1"_*.deb)
  apt_get install --no-install-recommends "${files[@]#"$root"}"
}
# shellcheck disable=SC2016  # dpkg-query's variables
status_of() { inside dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null || true; }

has_no_lintian_errors() {
  lintian --allow-root --fail-on error --tag-display-limit 0 "$packages"/*-1_*.deb >"$work/log" 2>&1 || fail "$(cat "$work/log")"
}

# Of the release that runs here, from the mirrors that it uses.
makes_a_clean_root() {
  local file sources=()
  for file in /etc/apt/sources.list.d/{debian,ubuntu}.sources /etc/apt/sources.list; do
    [[ -s $file ]] && sources+=("$file")
  done
  mmdebstrap --quiet --variant=apt --mode=root '' "$root" "${sources[@]}" >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"  # there is no init in a root like this
  chmod +x "$root/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  mkdir "$root/packages"
  cp "$packages"/*.deb "$root/packages"
  apt_get update
}

installs() {
  install_revision 1
  [[ $(inside id -un concert) == concert ]] || fail "there is no user concert"
  inside id -nG concert | grep -q concert-admin || fail "user concert is not in group concert-admin"
  inside systemd-analyze verify --man=no concertd.service >"$work/log" 2>&1 || fail "the unit: $(cat "$work/log")"
  [[ -L $root/etc/systemd/system/multi-user.target.wants/concertd.service ]] || fail "the unit is not enabled"
  inside dpkg --verify concertd concert-tools libconcert0 libconcert-dev python3-concert || fail "installed files differ from the packages'"
}

# systemd's part is done by hand: the folders, the user, the command of the unit.
runs() {
  local command
  command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/concertd.service")
  [[ $command == '/usr/bin/concertd --config /etc/concert/concert.toml' ]] || fail "the unit runs $command"
  inside install -d -o concert -g concert /run/concert /var/lib/concert
  # shellcheck disable=SC2086
  inside setpriv --reuid concert --regid concert --init-groups env CONCERT_DEVICE=sim $command >"$work/daemon.log" 2>&1 &
  local daemon=$!
  until inside concertctl status >"$work/status" 2>&1; do
    kill -0 "$daemon" 2>/dev/null || fail "concertd did not start: $(cat "$work/daemon.log")"
  done
  grep -qF 'on /run/concert/concert.sock' "$work/status" || fail "concertctl status: $(cat "$work/status")"
  [[ $(stat -c %a "$root/run/concert/admin.sock") == 660 ]] || fail "the admin socket is open to others"
  inside setpriv --reuid nobody --clear-groups /usr/libexec/concert/concert_demo --steps 2 >"$work/log" 2>&1 ||
    fail "a client of another user: $(cat "$work/log")"
  compiles_a_client
  computes_in_python
  inside concertctl drain >/dev/null
  wait "$daemon" || fail "concertd did not end well: $(cat "$work/daemon.log")"
}

# With this machine's compiler, which need not be in the root, and nothing but the root's headers and library.
compiles_a_client() {
  local config flags
  config=$(find "$root/usr/lib" -name concert.pc)
  flags=$(PKG_CONFIG_PATH=$(dirname "$config") pkg-config --cflags --libs concert)
  # shellcheck disable=SC2086
  c++ -std=c++20 "$root/usr/share/doc/concert/examples/minimal.cc" -o "$root/tmp/minimal" $flags || fail "no client compiles with $flags"
  [[ $(inside /tmp/minimal) == 'y[0] = 16' ]] || fail "the example does not compute through the daemon"
}

# numpy is recommended and not there. Bytecode is made once for everybody, and removed with the package.
computes_in_python() {
  local result
  # shellcheck disable=SC2016
  result=$(inside setpriv --reuid nobody --clear-groups python3 -c '
import array, importlib.metadata, concert
assert importlib.metadata.version("concert") == concert.__version__
with concert.connect() as session, session.queue() as queue:
    x, w, y = session.zeros((4, 8), "fp32"), session.zeros((16, 8), "fp32"), session.zeros((4, 16), "fp32")
    x.buffer.write(array.array("f", [0.5] * x.size))
    w.buffer.write(array.array("f", [0.25] * w.size))
    queue.gemm(x, w, y).wait()
    print(concert.__file__, set(memoryview(y.buffer.read()).cast("f")))' 2>&1) || true
  [[ $result == '/usr/lib/python3/dist-packages/concert/__init__.py {1.0}' ]] || fail "Python computes: $result"
  [[ -d $root/usr/lib/python3/dist-packages/concert/__pycache__ ]] || fail "the Python package was not compiled"
}

upgrades() {
  echo 'depth = 2' >"$root/etc/concert/concert.toml"
  inside systemctl disable concertd >/dev/null 2>&1
  install_revision 2
  [[ $(status_of concertd) == 'installed 0.'*-2 ]] || fail "after the upgrade concertd is $(status_of concertd)"
  [[ $(status_of python3-concert) == 'installed 0.'*-2 ]] || fail "after the upgrade python3-concert is $(status_of python3-concert)"
  inside python3 -c 'import concert' || fail "after the upgrade there is no Python package"
  [[ $(cat "$root/etc/concert/concert.toml") == 'depth = 2' ]] || fail "the upgrade replaced the configuration"
  [[ ! -L $root/etc/systemd/system/multi-user.target.wants/concertd.service ]] || fail "the upgrade enabled what was disabled"
  inside concertd --check-config >/dev/null || fail "the configuration is refused"
}

removes_and_purges() {
  touch "$root/var/lib/concert/tuning.sqlite3"
  apt_get remove concertd concert-tools libconcert0 libconcert-dev python3-concert
  [[ ! -e $root/usr/bin/concertd && ! -e $root/usr/lib/systemd/system/concertd.service ]] || fail "remove left programs"
  [[ ! -e $root/usr/lib/python3/dist-packages/concert ]] || fail "remove left the Python package"
  [[ -e $root/etc/concert/concert.toml && -e $root/var/lib/concert/tuning.sqlite3 ]] || fail "remove took what purge takes"
  inside dpkg --purge concertd concert-tools libconcert0 libconcert-dev python3-concert >"$work/log" 2>&1 || fail "purge: $(cat "$work/log")"
  rm -rf "$root/run/concert" "$root/packages" "$root/tmp/minimal"
  local left
  left=$(find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" -o -path "$root/var/cache/apt" \
    -o -path "$root/var/log" \) -prune -o -name '*concert*' -print)
  [[ -z $left ]] || fail "purge left $left"
}

((EUID == 0)) || fail "needs root, for a clean root"
for step in has_no_lintian_errors makes_a_clean_root installs runs upgrades removes_and_purges; do
  say "$step"
  "$step"
done
