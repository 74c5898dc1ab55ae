# shellcheck shell=bash
# Shell functions shared by deploy/quickstart, deploy/bundle, tests/run and .ci/run. Source it from bash
# with `set -euo pipefail`; it sets CONCERT_ROOT, the root of the checkout.
CONCERT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# packages_of GROUP...: the packages of deploy/dependencies in these groups, one per line.
packages_of() {
  awk -v groups=" $* " '
    /^\[/ { name = substr($0, 2, length($0) - 2); wanted = index(groups, " " name " ") > 0; next }
    wanted && NF && !/^#/ { print $1 }' "$CONCERT_ROOT/deploy/dependencies"
}

# install_missing GROUP...: installs the packages of these groups that the system lacks, and says which.
# As root without asking; else through sudo; where neither works, prints the command and fails.
install_missing() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu system: taking the packages in deploy/dependencies as given"
    return
  fi
  for package in $(packages_of "$@"); do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "packages are missing; as root, run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} missing packages: ${missing[*]}"
  "${as_root[@]}" apt-get -qq update </dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "${missing[@]}" </dev/null >/dev/null
}

# build PRESET [TARGET...]: configures the preset once and builds the targets (none: everything) on all cores.
build() {
  mkdir -p "$CONCERT_ROOT/build"
  local preset=$1 dir="$CONCERT_ROOT/build/$1"
  shift
  if [[ ! -f $dir/build.ninja ]]; then
    say "configuring build/$preset"
    (cd "$CONCERT_ROOT" && cmake --preset "$preset" >"$CONCERT_ROOT/build/$preset-configure.log" 2>&1) || {
      tail -30 "$CONCERT_ROOT/build/$preset-configure.log" >&2
      die "configuring build/$preset failed"
    }
  fi
  say "building build/$preset ${*:-}"
  ninja -C "$dir" -j "$(build_jobs)" "$@" </dev/null
}

# One compiler per core, but never more than memory carries: the largest files need about 1.5 GiB each.
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  ((memory_jobs >= 1)) || memory_jobs=1
  echo $((cores < memory_jobs ? cores : memory_jobs))
}
