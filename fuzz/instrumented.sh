#!/bin/sh
# rustc with counters for `make fuzz-coverage`. RUSTC_WORKSPACE_WRAPPER calls this for the packages of this workspace alone.
set -eu
exec "$@" -Cinstrument-coverage
