#!/usr/bin/env bash
# What `cmake --install` brings works from where it was put, whatever the prefix: programs, library, unit and
# configuration. With DESTDIR, as packages are made, no file speaks of the folder it was staged in.
#
#   install_test.sh BUILD_DIR
set -euo pipefail
build=$1
work=$(mktemp -d -t concert-install.XXXXXX)
daemon=
trap '[[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
# What this machine has set must not help.
unset "${!CONCERT_@}" LD_LIBRARY_PATH PKG_CONFIG_PATH

fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}

installs_all_parts() {
  local file
  for file in bin/concertd bin/concertctl lib/libconcert.so.0 lib/libconcert.so include/concert/concert.h include/concert/ops.h include/concert/program.h \
    include/concert/concert.hpp lib/pkgconfig/concert.pc lib/cmake/concert/concert-config.cmake \
    share/man/man8/concertd.8 share/man/man5/concert.toml.5 share/man/man1/concertctl.1 \
    share/bash-completion/completions/concertctl share/zsh/site-functions/_concertctl \
    share/fish/vendor_completions.d/concertctl.fish \
    lib/systemd/system/concertd.service lib/systemd/system/concert-mps.service lib/sysusers.d/concert.conf \
    etc/concert/concert.toml share/doc/concert/README.md share/doc/concert/docs/operations.md \
    share/doc/concert/examples/minimal.cc share/concert/concert.rules.yml share/concert/concert.json; do
    [[ -e $1/$file ]] || fail "$file was not installed"
  done
  for file in concert-bench concert_demo; do  # not everybody builds them
    [[ ! -e $build/bin/$file || -e $1/bin/$file || -e $1/libexec/concert/$file ]] || fail "$file was not installed"
  done
}

# Every link of the documents leads somewhere: nothing but these documents, pictures and examples is installed.
links_lead_somewhere() {
  local document target
  while IFS=: read -r document target; do
    target=${target#](} target=${target%[)#]}
    [[ $target == *:* || -e $(dirname "$document")/$target ]] || fail "$document has a link to $target"
  done < <(grep -roE --include='*.md' '\]\([^)# ]+[)#]' "$1/share/doc/concert")
  grep -qF '](../examples/decode.cc)' "$1/share/doc/concert/docs/client.md" || fail "client.md has no link to an example"
}

# Compiles a client with the flags of pkg-config and one with the CMake package.
builds_clients() {
  local prefix=$1 flags
  flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs concert)
  printf '%s\n' '#include <concert/concert.h>' '#include <stdio.h>' 'int main(void) { return puts(concert_version()) < 0; }' \
    >"$work/client.c"
  # shellcheck disable=SC2086
  cc -Wall -Werror "$work/client.c" -o "$work/client" $flags || fail "a C client does not compile with: $flags"
  [[ $(LD_LIBRARY_PATH=$prefix/lib "$work/client") == [0-9]*.* ]] || fail "a C client does not run"

  mkdir -p "$work/project"
  cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.24)
project(client LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(concert 0.1 REQUIRED)
add_executable(client "${EXAMPLE}")
target_link_libraries(client PRIVATE concert::concert)
END
  {
    cmake -S "$work/project" -B "$work/project/build" -G Ninja "-Dconcert_DIR=$prefix/lib/cmake/concert" \
      "-DEXAMPLE=$prefix/share/doc/concert/examples/minimal.cc" && cmake --build "$work/project/build"
  } >"$work/log" 2>&1 || fail "the CMake package does not work: $(cat "$work/log")"
}

# Starts the daemon as the unit does, but for the sockets, which only the system may make in /run.
starts_from_its_unit() {
  local prefix=$1 command
  command=$(sed -n 's/^ExecStart=//p' "$prefix/lib/systemd/system/concertd.service")
  [[ $command == "$prefix/bin/concertd --config $prefix/etc/concert/concert.toml" ]] || fail "the unit runs $command"
  export CONCERT_SOCKET=$work/concert.sock CONCERT_ADMIN_SOCKET=$work/admin.sock
  # shellcheck disable=SC2086
  env CONCERT_DEVICE=sim CONCERT_TUNE_STORE="$work/tuning.sqlite3" $command >"$work/daemon.log" 2>&1 &
  daemon=$!
  until "$prefix/bin/concertctl" status >"$work/status" 2>&1; do
    kill -0 "$daemon" 2>/dev/null || fail "concertd did not start: $(cat "$work/daemon.log")"
  done
  grep -q 'sim' "$work/status" || fail "concertctl status says: $(cat "$work/status")"
  "$work/project/build/client" >"$work/out" 2>&1 || fail "the example failed: $(cat "$work/out")"
  grep -qF 'y[0] = 16' "$work/out" || fail "the example printed: $(cat "$work/out")"
  if [[ -e $prefix/libexec/concert/concert_demo ]]; then
    "$prefix/libexec/concert/concert_demo" --steps 2 >"$work/out" 2>&1 || fail "the demo failed: $(cat "$work/out")"
  fi
  "$prefix/bin/concertctl" drain >/dev/null
  wait "$daemon" || fail "concertd did not end well: $(cat "$work/daemon.log")"
  daemon=
}

keeps_the_operators_configuration() {
  echo 'depth = 2' >"$1/etc/concert/concert.toml"
  cmake --install "$build" --prefix "$1" --component concertd >/dev/null
  [[ $(cat "$1/etc/concert/concert.toml") == 'depth = 2' ]] || fail "a second installation replaced the configuration"
}

# A system in /usr is configured in /etc; nothing points into the staging folder, or into /usr/local.
stages_for_a_package() {
  DESTDIR=$work/stage cmake --install "$build" --prefix /usr >/dev/null
  grep -qx 'ExecStart=/usr/bin/concertd --config /etc/concert/concert.toml' \
    "$work/stage/usr/lib/systemd/system/concertd.service" || fail "the unit for /usr does not run /usr/bin/concertd"
  [[ -e $work/stage/etc/concert/concert.toml ]] ||
    fail "the configuration is not in /etc"
  "$work/stage/usr/bin/concertd" --print-config --config "$work/stage/etc/concert/concert.toml" >"$work/settings"
  grep -q '^unusable_gpu = "error"' "$work/settings" || fail "the unit would serve what is simulated on a GPU node"
  # Documents may speak of /usr/local.
  if grep -rIl "$work" "$work/stage" || grep -rIl --exclude-dir=docs /usr/local/ "$work/stage"; then
    fail "these files hold a folder they must not know"
  fi
  PKG_CONFIG_PATH=$work/stage/usr/lib/pkgconfig pkg-config --cflags concert | grep -q "$work/stage/usr/lib/" ||
    fail "concert.pc does not find the headers beside it"
}

cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
installs_all_parts "$work/prefix"
links_lead_somewhere "$work/prefix"
builds_clients "$work/prefix"
starts_from_its_unit "$work/prefix"
keeps_the_operators_configuration "$work/prefix"
stages_for_a_package
