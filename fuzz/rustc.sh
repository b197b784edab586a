#!/bin/sh
# Which crates count what a fuzzed case reaches? RUSTC_WRAPPER calls this with rustc and its arguments: only the package keeps the
# counters, and not what makes its cases, because libFuzzer reads all of them after each case. The sanitizer stays in every crate.
set -eu
rustc=$1
shift
case " $* " in
*" --crate-name arrow_dlpack "*) exec "$rustc" "$@" ;;
esac
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    case $argument in
    -Cpasses=sancov-module | -Cllvm-args=-sanitizer-coverage-* | -Cllvm-args=--sanitizer-coverage-*) ;;
    *) set -- "$@" "$argument" ;;
    esac
    count=$((count - 1))
done
exec "$rustc" "$@"
