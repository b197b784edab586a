#![no_main]

libfuzzer_sys::fuzz_target!(init: arrow_dlpack_fuzz::start(), |bytes: &[u8]| arrow_dlpack_fuzz::run("loader", bytes));
