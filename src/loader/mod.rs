//! x
#![allow(dead_code, missing_docs, reason="wip")]
mod ahead;
mod draws;
mod split;
