#!/bin/sh
# cargo, for builds whose products list the crates that they were made of: `cargo audit bin` reads that list from an installed wheel.
# maturin runs one program as cargo, and `cargo-auditable` takes the word after it for a compiler unless that word is `auditable`.
set -eu
exec env -u CARGO cargo-auditable auditable "$@"
