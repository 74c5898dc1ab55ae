#!/usr/bin/env bash
# The source file that knows the commit changes with it and only then, and sources without git build, too.
#
#   build_commit_test.sh deploy/cmake/WriteBuildCommit.cmake
set -euo pipefail
work=$(mktemp -d -t concert-commit.XXXXXX)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CEILING_DIRECTORIES=$work
repository() { git -C "$work/source" -c user.name=test -c user.email=test@example.com "$@"; }
answer() {
  cmake "$@" "-DSOURCE=$work/source" "-DOUT=$work/commit.cc" -P "$script"
  sed -n 's/.*return "\(.*\)".*/\1/p' "$work/commit.cc"
}
expect() {
  local what=$1 wanted=$2 got
  shift 2
  got=$(answer "$@")
  [[ $got == "$wanted" ]] || { echo "$what: '$got' instead of '$wanted'"; exit 1; }
}
script=$1

mkdir "$work/source"
expect "without git" unknown
expect "without git, told" v1.2-rc -DCOMMIT=v1.2-rc
expect "told what is no commit" unknown '-DCOMMIT="; evil'
repository init -q
echo one >"$work/source/file" && repository add file && repository commit -qm one
repository tag -a v1 -m v1
commit=$(repository rev-parse HEAD)
expect "a commit" "$commit"
touch -d @1000 "$work/commit.cc"
expect "the same commit" "$commit"
[[ $(stat -c %Y "$work/commit.cc") == 1000 ]] || { echo "the file was written again for the same commit"; exit 1; }
echo two >"$work/source/file"
expect "a change" "$commit-dirty"
repository commit -qam two
expect "the next commit" "$(repository rev-parse HEAD)"
