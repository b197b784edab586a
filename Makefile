# Each target does its own set-up. Stamps keep the second run quick: an installed set of requirements, the built wheel and
# the installed package are each redone only when their inputs changed.

# Any CPython from 3.11; used once, to make the environment.
PYTHON ?= python3
# full, or light: without the libraries that are large to download. `make test` takes none of them but torch.
INTEROP ?= full
# numpy or torch, cpu or cuda: what the demo runs on.
FRAMEWORK ?= numpy
DEVICE ?= cpu
# A checkout of data-apis/array-api-tests, with its submodule. No package has it.
ARRAY_API_TESTS ?=
# Of the topics of `make bench`, those wanted, such as pack,back; and 1 for small sizes, to see that it runs.
ONLY ?=
QUICK ?=
# How the simulated driver orders work: these two fail every proof of `make prove-waits`. `make test-schedules` runs all of the others.
CUDA_SCHEDULES ?= lazy,random:1
# Every schedule but the first runs each Python test with one in so many of its parameter sets.
CUDA_SHARE ?= 4
# 1: `make check-versions` builds polars with the oldest Rust, too, in ten minutes.
SLOW ?=
# 1: `make audit` asks the database of advisories, too.
ADVISORIES ?=
# How long `make fuzz` runs each of its targets, and `make soak` all of its rounds.
SECONDS ?= 60
# A free-threaded CPython from 3.14; `make release` adds a wheel for it where one is named.
PYTHON_FREE ?=
# Passed to every cargo command, such as --locked.
CARGO_FLAGS ?=
# Of the profile `release`, for the wheel of `make wheel`: optimisation across crates takes most of its build. With `false` a call takes a few
# percent longer.
WHEEL_LTO ?= fat

comma := ,
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMPS := $(VENV)/stamps
REQUIREMENTS := python/requirements
LINTED_PYTHON := python tests/python tests/peers tests/cuda tests/gpu tests/ptx fuzz/corpus.py fuzz/coverage.py $(wildcard examples benches) .ci

# Extension modules that link the crate, with lock files of their own, which have the versions of the workspace's, so that what was built for
# one is used for the other; tests/python/extensions builds and tests them. `guest_pyo3_0_29` has the source of `guest`, which lint reads once.
EXTENSIONS := examples/pyclass $(filter-out %/guest_pyo3_0_29/,$(dir $(wildcard tests/python/extensions/*/Cargo.toml)))

# What tests/polars asks of polars-core. With the same features polars is built once for its tests, and for the crate's own.
POLARS_FEATURES = $(or $(shell $(BIN)/python -c 'import tomllib; \
	asked = tomllib.load(open("tests/polars/Cargo.toml", "rb"))["dependencies"]["polars-core"]["features"]; \
	print(",".join("polars-core/" + feature for feature in asked))'),$(error tests/polars/Cargo.toml asks for no features of polars-core))

# Programs over crates that take minutes to build, with lock files of their own. No CI runs them: `make examples` does.
EXAMPLE_CRATES := candle datafusion polars-lazy
EXAMPLE_MANIFESTS := $(EXAMPLE_CRATES:%=examples/%/Cargo.toml)

SANITIZED_TARGET := x86_64-unknown-linux-gnu
# Refused allocations are errors here, not faults.
SANITIZED := allocator_may_return_null=1:detect_stack_use_after_return=1
ASAN_TARGET_DIR ?= target/asan
WITH_ASAN = RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$(ASAN_TARGET_DIR) ASAN_OPTIONS=$(SANITIZED)
# The Python tests of structs, capsules and memory that somebody else made wrong, or changes.
ASAN_PYTHON ?= test_hostile_arrow.py test_hostile_dlpack.py test_types_hostile.py test_capsules.py test_random_capsules.py test_callbacks.py \
	test_lent_memory.py test_streams_overlapping.py test_exchange_arrays.py
TSAN_TARGET_DIR ?= target/tsan
WITH_TSAN = RUSTFLAGS='-Zsanitizer=thread --cfg thread_sanitizer' CARGO_TARGET_DIR=$(TSAN_TARGET_DIR) TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1
# What threads share: exported objects, lent memory, blocks that are kept, channels, the loader, deferred frees. Nothing is mapped there.
TSAN_TESTS ?= --lib --test sharing --test asynchronous --test ownership --test ragged --test matrix
TSAN_FILTER ?= loader alloc stream_order transfer export threads streams overlapping exchange changing channel \
	--skip alloc::mapped --skip alloc::growing
# Of them, what every change has to pass.
TSAN_SLICE ?= --lib --test sharing
MIRI_TARGET_DIR ?= target/miri
# Both rules of aliasing that Rust may choose from.
MIRI_MODELS ?= stacked tree
MIRI_stacked := -Zmiri-permissive-provenance
MIRI_tree := -Zmiri-permissive-provenance -Zmiri-tree-borrows
MIRI_TESTS ?= --lib --test ownership --test sharing --test ragged --test layout --test batches --test list_lengths --test categories \
	--test requested_nested --test conversion --test storage_types --test arrow_rs --test caller_memory --test varied_groups \
	--test hostile --test round_trip --test matrix_to_arrow --test casts --test properties --test requested_schema --test asynchronous \
	--test requested_values --test type_rules
# Of them, what every change has to pass: the checks of structs of others, and of their owners.
MIRI_SLICE ?= --lib -- arrow::check arrow::schema arrow::stream arrow::tests dlpack::
WITH_MIRI = MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-symbolic-alignment-check $(MIRI_$*)' PROPTEST_CASES=2 RUST_BACKTRACE=0 \
	CARGO_TARGET_DIR=$(MIRI_TARGET_DIR)
# How long the campaign runs each fuzz target; two hours each are a whole one.
CAMPAIGN_SECONDS ?= 600
CAMPAIGN ?= test-schedules asan tsan miri test-aarch64 test-windows test-musl fuzz soak
# Those besides Linux with glibc whose wheels the release workflow makes.
PLATFORMS ?= x86_64-pc-windows-msvc aarch64-apple-darwin x86_64-apple-darwin x86_64-unknown-linux-musl
AARCH64 := aarch64-unknown-linux-gnu
AARCH64_QEMU := qemu-aarch64-static
AARCH64_LINKER := aarch64-linux-gnu-gcc
AARCH64_TESTS ?= --lib -- convert:: alloc:: arrow::
# The kernels with NEON's vectors that take seconds.
AARCH64_SLICE := --lib -- convert::pack::vector convert::pack::transpose convert::pack::tests::complex convert::pack::bit_rows \
	convert::pack::select convert::bitmap convert::small_matrix convert::columns_from_rows
# What qemu runs in ten minutes, and what starts no process: types both ways, copies, padding, the loader.
AARCH64_WHEEL_TESTS ?= $(addprefix tests/python/test_,types_to_arrow.py writable.py out.py padding.py loader_order.py)
WINDOWS := x86_64-pc-windows-gnu
WINDOWS_LINKER := x86_64-w64-mingw32-gcc
# Debian has it in no folder of the PATH.
WINE ?= $(firstword $(shell command -v wine64) /usr/lib/wine/wine64)
# The test that is left out starts cargo, which is no program of Windows here.
WINDOWS_TESTS ?= --lib --tests -- --skip parquet_to_tensors
MUSL := x86_64-unknown-linux-musl
MUSL_TESTS ?= --lib --tests
FUZZ_VERSION := 0.13.1
DENY_VERSION := 0.20.2
AUDITABLE_VERSION := 0.7.7
# The release that reads the JSON of rustdoc 1.95; .ci/public_api.py says which format that is.
PUBLIC_API_VERSION := 0.52.0
# The most that deflate can: 0.7 % off the packed extension module against level 6.
MATURIN_WHEEL := --release --compression-level 9
# No folder of this machine is in the wheel: whoever builds the commit again gets the same bytes.
REMAPPED := --remap-path-prefix=$(CURDIR)=arrow-dlpack --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo
CARGO_TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
SIMULATED_CUDA := $(CARGO_TARGET)/simulated-cuda
FREE := $(abspath $(CARGO_TARGET))/free-threaded
WINE_FILES := $(abspath $(CARGO_TARGET))/wine
SKIP_WAITS := $(abspath $(CARGO_TARGET))/skip-waits
FUZZ_TOOLS := $(CARGO_TARGET)/cargo-fuzz-$(FUZZ_VERSION)
PUBLIC_API_TOOLS := $(CARGO_TARGET)/cargo-public-api-$(PUBLIC_API_VERSION)
DENY_TOOLS := $(CARGO_TARGET)/cargo-deny-$(DENY_VERSION)
AUDITABLE_TOOLS := $(CARGO_TARGET)/cargo-auditable-$(AUDITABLE_VERSION)
# A build whose library lists the crates that it is made of.
AUDITABLE = CARGO='$(CURDIR)/.ci/auditable.sh' PATH='$(CURDIR)/$(BIN)':'$(AUDITABLE_TOOLS)/bin':"$$PATH"
FUZZ_TARGETS ?= arrow_array arrow_device arrow_schema arrow_stream dlpack uses conversions options loader differential
# What the fuzzers find goes on here; fuzz/corpus has the part of it that is kept.
FUZZ_CORPUS := $(abspath $(CARGO_TARGET))/fuzz-corpus
# Only this package counts what a case reaches: libFuzzer reads all counters after each case, and arrow-rs has most of them. Long stacks of
# allocations and a look for uses of a returned frame take half of the time of a small case; `make asan` has both, and the kept cases. What a
# case frees stays unused until 4 MiB more are freed, which few cases do; the 256 MiB that are usual do not fit in the caches.
FUZZ_ASAN := allocator_may_return_null=1:detect_stack_use_after_return=0:malloc_context_size=1:quarantine_size_mb=4
WITH_FUZZ = RUSTC_BOOTSTRAP=1 RUSTC_WRAPPER=$(abspath fuzz/rustc.sh) ASAN_OPTIONS=$(FUZZ_ASAN)
# What `make fuzz-coverage` runs, and the files of which it shows what nothing reached: the checks of foreign structs.
COVERAGE_TESTS ?= --test hostile -- corpus::
COVERAGE_FILES ?= src/arrow/check.rs src/arrow/import.rs src/dlpack/import.rs
FUZZ_LIMITS := -max_len=192 -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=100000000

GPU_BUNDLE := dist/gpu
RELEASE := dist/release
REPRODUCED := $(abspath $(CARGO_TARGET))/reproduced
AARCH64_WHEEL := $(abspath $(CARGO_TARGET))/aarch64-wheel
# The oldest glibc that the released wheel runs on: that of 2014.
MANYLINUX := manylinux_2_17
OLD_GLIBC := $(if $(filter Linux,$(shell uname -s)),--zig --compatibility $(MANYLINUX))
# Alpine 3.13 of 2021 and newer.
MUSLLINUX := musllinux_1_2
# The oldest macOS that the wheels run on, of 2020: the first for Apple silicon.
MACOS := 11.0

# One interpreter for every build, so that none undoes another's cache.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Folders are listed too: their time changes when a file is removed.
SOURCES := Cargo.toml $(wildcard Cargo.lock) python/Cargo.toml python/pyproject.toml README.md \
	$(shell find src python/src python/arrow_dlpack -name __pycache__ -prune -o -print)

# Where the interpreter's shared library is, if it has one that can be linked; else nothing.
LIBPYTHON = $(shell $(BIN)/python -c 'import os, sysconfig as s; d, n = s.get_config_var("LIBDIR"), s.get_config_var("LDLIBRARY"); \
	print(d if s.get_config_var("Py_ENABLE_SHARED") and os.path.exists(os.path.join(d, n)) else "")')

ifeq ($(filter $(INTEROP),full light),)
$(error INTEROP is full or light, not "$(INTEROP)")
endif
ifeq ($(filter $(FRAMEWORK),numpy torch),)
$(error FRAMEWORK is numpy or torch, not "$(FRAMEWORK)")
endif
ifeq ($(filter $(DEVICE),cpu cuda),)
$(error DEVICE is cpu or cuda, not "$(DEVICE)")
endif

TEST_SETS := test $(if $(filter full,$(INTEROP)),test-heavy)
# Each process imports every library. One that has no tests left takes those of another: some tests take minutes.
IN_PARALLEL := -n auto --maxprocesses 8 --dist worksteal
BENCH_SETS := bench $(if $(filter full,$(INTEROP)),bench-heavy)
DEMO_SETS := demo $(if $(filter torch,$(FRAMEWORK)),demo-torch)

.PHONY: help demo examples test test-rust test-polars test-python test-cuda test-schedules test-ptx ptx cubins test-simulated-cuda simulated-cuda prove-waits cuda-times gpu-bundle peers interop
.PHONY: test-free-threaded soak asan asan-rust asan-python slices asan-slice tsan tsan-slice miri miri-slice miri-toolchain miri-stacked miri-tree aarch64-tools aarch64-slice campaign test-aarch64 test-aarch64-wheel test-windows test-musl check-platforms fuzz fuzz-corpus fuzz-coverage lint lint-rust lint-beside-wheel lint-types lint-types-windows lint-stubs public-api check-versions audit bench wheel reproducible release release-native release-musl clean
# Two installs into one environment at once would break it.
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo 'make demo    train a model on real flights  (FRAMEWORK=numpy|torch DEVICE=cpu|cuda)'
	@echo 'make test    the Rust and the Python tests  (INTEROP=full|light; light leaves torch out)'
	@echo 'make test-polars  the tests of the features polars and ndarray; a part of make test'
	@echo 'make examples  builds and runs examples/candle, examples/datafusion and examples/polars-lazy; no part of make test or of CI'
	@echo 'make test-cuda  the tests of CUDA on a simulated driver; a part of make test  (CUDA_SCHEDULES=lazy,random:1)'
	@echo 'make test-schedules  the same under the schedules that make test leaves out; CI runs it weekly, with the sanitizers'
	@echo 'make ptx     compiles src/cuda/kernels.cu to the PTX that is committed; make test-ptx checks it'
	@echo 'make cubins  assembles that PTX for the usual GPUs, and packs both; make test-ptx checks it'
	@echo 'make prove-waits  shows for each wait for a device the test that fails without it'
	@echo 'make cuda-times  writes docs/cuda-times.md: what takes how long on the virtual clock of the simulated driver'
	@echo 'make gpu-bundle   what the tests on a real GPU need, in dist/gpu/  (tests/gpu/README.md)'
	@echo 'make simulated-cuda  a CUDA driver on host memory that reports races, in target/simulated-cuda/'
	@echo 'make peers   the suites of NumPy, pyarrow and pandas through the package  (ARRAY_API_TESTS=<a checkout>)'
	@echo 'make interop the tests against each library, in environments of their own  (INTEROP=full|light DISCARD=1)'
	@echo 'make test-free-threaded  the Python tests on free-threaded Python  (PYTHON_FREE=python3.14t)'
	@echo 'make soak    conversions and epochs for SECONDS=60 that may leave nothing behind'
	@echo 'make asan    the Rust tests under AddressSanitizer and LeakSanitizer, then the Python tests of hostile input'
	@echo 'make tsan    the Rust tests of what threads share under ThreadSanitizer  (needs a nightly toolchain)'
	@echo 'make miri    the Rust tests under Miri, with both models of aliasing  (MIRI_MODELS=tree MIRI_TESTS="--lib -- loader")'
	@echo 'make slices  a part of each of these three and of test-aarch64, as CI runs them; says what it leaves out'
	@echo 'make campaign   make test-schedules, the three, the tests for AArch64, Windows and musl, then every fuzz target and the soak for CAMPAIGN_SECONDS=600 each; says what passed'
	@echo 'make test-aarch64  the Rust tests of kernels and memory for AArch64 under qemu  (AARCH64_TESTS=--test ownership)'
	@echo 'make aarch64-tools  installs what these tests need on Debian'
	@echo 'make test-aarch64-wheel AARCH64_PYTHON=...  builds the wheel for AArch64, and tests it in that Python'
	@echo 'make test-windows  the Rust tests for Windows under Wine; make test-musl  those for Linux with musl'
	@echo 'make fuzz    every fuzz target for SECONDS=60 each  (FUZZ_TARGETS=options)'
	@echo 'make fuzz-corpus    keeps in fuzz/corpus what make fuzz has found'
	@echo 'make fuzz-coverage  how much of each room those cases reach  (COVERAGE_TESTS=--lib COVERAGE_FILES=src/ragged/level.rs)'
	@echo 'make lint    formatting, clippy, docs, types, licences, the public API'
	@echo 'make public-api   writes the public Rust API to docs/public-api/; make lint compares'
	@echo 'make check-versions  builds with each PyO3 of the range, the oldest Rust and the next arrow  (SLOW=1: polars, too)'
	@echo 'make audit   licences, sources and duplicates of the crates in the wheel  (ADVISORIES=1: and what is known against them)'
	@echo 'make bench   figures against a plain copy and against peers  (ONLY=pack,back QUICK=1 INTEROP=full|light)'
	@echo 'make wheel   the release wheel, in dist/'
	@echo 'make reproducible  builds that wheel in two clones, and compares the bytes'
	@echo 'make release the files of a release, tested, in dist/release/  (docs/releasing.md)'
	@echo 'make clean   remove what was built and the environment'
	@echo 'PYTHON=python3.12 chooses the interpreter when the environment is first made.'

demo: $(STAMPS)/installed $(DEMO_SETS:%=$(STAMPS)/%)
	$(BIN)/python examples/flights/demo.py --framework $(FRAMEWORK) --device $(DEVICE)

test: test-rust
	@$(MAKE) --no-print-directory test-polars
	@$(MAKE) --no-print-directory test-python
	@$(MAKE) --no-print-directory test-cuda
	@$(MAKE) --no-print-directory test-ptx
	@$(MAKE) --no-print-directory peers
	@$(MAKE) --no-print-directory interop INTEROP=light

# With the stable ABI, as the extension modules have PyO3, so that it is built once.
test-rust: $(STAMPS)/venv test-simulated-cuda
	@libs='$(LIBPYTHON)'; if [ -n "$$libs" ]; then \
		set -x; \
		LD_LIBRARY_PATH="$$libs:$$LD_LIBRARY_PATH" cargo test $(CARGO_FLAGS) --package arrow-dlpack --features async,python,pyo3/abi3-py311; \
	else \
		echo 'LEFT OUT: Rust unit tests of the feature python (this Python has no shared library to link)'; \
		set -x; \
		cargo test $(CARGO_FLAGS) --package arrow-dlpack --features async; \
	fi

test-simulated-cuda:
	cargo test $(CARGO_FLAGS) --package simulated-cuda

# Polars is built for these alone, with every dtype. That no more is needed than the feature asks for, `make lint` sees.
test-polars: $(STAMPS)/venv
	cargo test --locked --manifest-path tests/polars/Cargo.toml --target-dir $(CARGO_TARGET)
	cargo test $(CARGO_FLAGS) --package arrow-dlpack --features polars,ndarray,$(POLARS_FEATURES) --doc -- polars ndarray
	cargo run $(CARGO_FLAGS) --package arrow-dlpack --features polars,ndarray,$(POLARS_FEATURES) --example 05-polars
	cargo run $(CARGO_FLAGS) --package arrow-dlpack --features polars,ndarray,$(POLARS_FEATURES) --example 06-ndarray

# Each asserts its results. In debug and without debug information, in a folder of their own that can be removed afterwards.
examples:
	$(PYTHON) .ci/dependencies.py $(EXAMPLE_MANIFESTS)
	for manifest in $(EXAMPLE_MANIFESTS); do \
		cargo run --locked --manifest-path $$manifest --target-dir $(CARGO_TARGET)/examples || exit 1; \
	done

# The simulated driver, under both names by which programs load a driver: one file, so that it is loaded once.
simulated-cuda:
	cargo build $(CARGO_FLAGS) --package simulated-cuda
	@mkdir -p $(SIMULATED_CUDA)
	@cp $(CARGO_TARGET)/debug/libsimulated_cuda.so $(SIMULATED_CUDA)/libcuda.so.1.new
	@mv $(SIMULATED_CUDA)/libcuda.so.1.new $(SIMULATED_CUDA)/libcuda.so.1
	@ln -sf libcuda.so.1 $(SIMULATED_CUDA)/libcuda.so
	$(CXX) -std=c++17 -O1 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -fno-strict-aliasing -fPIC -shared -I src/cuda \
		-o $(SIMULATED_CUDA)/libsimulated_kernels.so.new tests/simulated-kernels/kernels.cc
	@mv $(SIMULATED_CUDA)/libsimulated_kernels.so.new $(SIMULATED_CUDA)/libsimulated_kernels.so
	@echo 'LD_LIBRARY_PATH=$(SIMULATED_CUDA) runs a program on it'

# With the extension modules of other crates, which tests/python/extensions builds in debug.
test-python: $(STAMPS)/installed $(TEST_SETS:%=$(STAMPS)/%)
	ARROW_DLPACK_INTEROP=$(INTEROP) $(BIN)/python -m pytest $(IN_PARALLEL) tests/python
	@$(if $(filter light,$(INTEROP)),echo 'LEFT OUT by INTEROP=light: the tests against torch')

test-cuda: $(STAMPS)/installed $(STAMPS)/test simulated-cuda
	$(BIN)/python tests/cuda/run.py --schedules $(CUDA_SCHEDULES) --share $(CUDA_SHARE) --cargo-flags='$(CARGO_FLAGS)' -- $(IN_PARALLEL)

test-schedules:
	$(MAKE) --no-print-directory test-cuda CUDA_SCHEDULES=eager,random:1,random:2,random:3,random:4 CUDA_SHARE=1

# The kernels as the text that the driver compiles, made by one version of nvrtc on Linux.
ptx: $(STAMPS)/ptx
	$(BIN)/python tests/ptx/compile.py src/cuda/kernels.cu src/cuda/kernels.ptx

# That text as the usual devices run it, made by one version of ptxas on Linux, and packed with the text.
cubins: ptx
	$(BIN)/python tests/ptx/pack.py src/cuda/kernels.ptx src/cuda/kernels.lzma
	$(BIN)/python tests/ptx/report.py src/cuda/kernels.ptx docs/kernels.md

# Where the wheels cannot be installed, the tests say so and are skipped.
test-ptx: $(STAMPS)/test
	-@$(MAKE) --no-print-directory $(STAMPS)/ptx
	$(BIN)/python -m pytest tests/ptx

# Builds with `--cfg skip_waits`, which can leave out a wait, in a target folder of its own. The wheel is not installed: no user
# may have it.
prove-waits: $(STAMPS)/build $(STAMPS)/test simulated-cuda
	rm -rf $(SKIP_WAITS)/wheel $(SKIP_WAITS)/site
	RUSTFLAGS="$$RUSTFLAGS --cfg skip_waits" CARGO_PROFILE_RELEASE_LTO=off $(BIN)/maturin build $(CARGO_FLAGS) --release \
		--target-dir $(SKIP_WAITS)/build --manifest-path python/Cargo.toml --interpreter $(BIN)/python --out $(SKIP_WAITS)/wheel
	$(BIN)/pip install --quiet --no-deps --target $(SKIP_WAITS)/site $(SKIP_WAITS)/wheel/*.whl
	PYTHONPATH=$(SKIP_WAITS)/site $(BIN)/python tests/cuda/run.py --prove-waits --cargo-flags='$(CARGO_FLAGS)'

# By modelled costs: the figures of the first use are the same in every run. The others differ a little by when the reaper runs.
cuda-times: $(STAMPS)/installed $(STAMPS)/test simulated-cuda
	$(BIN)/python tests/cuda/times.py

peers: $(STAMPS)/installed $(STAMPS)/test $(STAMPS)/peers
	$(if $(ARRAY_API_TESTS),ARRAY_API_TESTS='$(abspath $(ARRAY_API_TESTS))') $(BIN)/python -m pytest tests/peers
	@$(if $(ARRAY_API_TESTS),,echo 'LEFT OUT: the suite of the array API standard (ARRAY_API_TESTS=<a checkout>; tests/peers/README.md)')

interop: $(STAMPS)/wheel
	$(BIN)/python tests/python/interop/run.py $(if $(filter light,$(INTEROP)),--light) $(if $(DISCARD),--discard)

# The stable ABI has no free-threaded form before 3.15, so the extension is built for this one version, in debug. Libraries that have
# no wheel for it are not installed: the tests that use them are skipped, and say so. Extensions of other crates are built by test-python.
test-free-threaded:
	@command -v '$(PYTHON_FREE)' >/dev/null || { \
		echo 'LEFT OUT: the tests on free-threaded Python (pass PYTHON_FREE=<a free-threaded CPython from 3.14>)'; exit 1; }
	@$(PYTHON_FREE) -c 'import sys, sysconfig; sys.exit(None if sysconfig.get_config_var("Py_GIL_DISABLED") else "error: $(PYTHON_FREE) is not free-threaded")'
	rm -rf $(FREE)/wheel
	$(PYTHON_FREE) -m venv $(FREE)/venv
	$(FREE)/venv/bin/pip install --quiet --constraint $(REQUIREMENTS)/constraints.txt maturin \
		$$(sed -E '/^(#|-|polars$$|duckdb$$)/d' $(REQUIREMENTS)/test.txt)
	PYO3_PYTHON=$(FREE)/venv/bin/python $(FREE)/venv/bin/maturin build $(CARGO_FLAGS) --target-dir $(FREE)/build \
		--manifest-path python/Cargo.toml --interpreter $(FREE)/venv/bin/python --out $(FREE)/wheel
	$(FREE)/venv/bin/pip install --quiet --force-reinstall --no-deps $(FREE)/wheel/*.whl
	PYTHON_GIL=0 ARROW_DLPACK_INTEROP=light $(FREE)/venv/bin/python -m pytest $(IN_PARALLEL) tests/python --ignore tests/python/extensions
	@echo 'LEFT OUT: the tests against torch, and those of extension modules of other crates'

soak: $(STAMPS)/installed $(STAMPS)/test
	$(BIN)/python tests/python/soak.py --seconds $(SECONDS)

# A target folder of its own, as the flags are others. Doctests cannot be linked with the sanitizer's runtime.
asan: asan-rust asan-python

asan-rust:
	$(WITH_ASAN) cargo test $(CARGO_FLAGS) --package arrow-dlpack --target $(SANITIZED_TARGET) --lib --tests

# The interpreter is not instrumented, so the runtime is loaded before it. Its memory and the libraries' that lives until the exit would all
# be leaks: LeakSanitizer is left to the Rust tests. Python's own blocks come from malloc, so that reads behind one are seen.
asan-python: $(STAMPS)/test
	$(WITH_ASAN) cargo build $(CARGO_FLAGS) --package arrow-dlpack-python --target $(SANITIZED_TARGET)
	@rm -rf $(ASAN_TARGET_DIR)/site && mkdir -p $(ASAN_TARGET_DIR)/site && cp -R python/arrow_dlpack $(ASAN_TARGET_DIR)/site/
	@cp $(ASAN_TARGET_DIR)/$(SANITIZED_TARGET)/debug/lib_native.so $(ASAN_TARGET_DIR)/site/arrow_dlpack/_native.abi3.so
	LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=$(SANITIZED):detect_leaks=0 PYTHONMALLOC=malloc \
		PYTHONPATH=$(abspath $(ASAN_TARGET_DIR))/site ARROW_DLPACK_INTEROP=light \
		$(BIN)/python -m pytest -p no:cacheprovider $(addprefix tests/python/,$(ASAN_PYTHON))

# $(call with_nightly,COMPONENT ...): is there a nightly toolchain with these components? Adds those that are missing where it can.
with_nightly = command -v rustup >/dev/null && rustup component add $(1) --toolchain nightly >/dev/null 2>&1

# ThreadSanitizer has to see the standard library's locks, so that is built too: by a nightly compiler, with its source.
tsan:
	@$(call with_nightly,rust-src) || { \
		echo 'LEFT OUT: ThreadSanitizer (it needs a nightly toolchain with rust-src: rustup toolchain install nightly --component rust-src)'; exit 1; }
	$(WITH_TSAN) cargo +nightly test $(CARGO_FLAGS) -Zbuild-std --package arrow-dlpack --features async --target $(SANITIZED_TARGET) \
		$(TSAN_TESTS) -- $(TSAN_FILTER)

# Miri interprets the tests that need no other library's code: pointers, aliasing, alignment, data races, leaks. It has no vectors of AVX, so
# the kernels are the portable ones. Memory that a static holds until the end is no leak.
miri: $(MIRI_MODELS:%=miri-%)

miri-toolchain:
	@$(call with_nightly,miri rust-src) || { \
		echo 'LEFT OUT: Miri (it needs a nightly toolchain with miri: rustup toolchain install nightly --component miri,rust-src)'; exit 1; }

$(addprefix miri-,stacked tree): miri-%: miri-toolchain
	$(WITH_MIRI) cargo +nightly miri test $(CARGO_FLAGS) --package arrow-dlpack --features async $(MIRI_TESTS)

# What every change has to pass: a part of each sanitizer, and of the kernels for AArch64. The cases that the fuzzers kept take a minute or two of
# two cores.
slices: asan-slice tsan-slice miri-slice aarch64-slice

asan-slice:
	@if [ "$$(uname -s) $$(uname -m)" = 'Linux x86_64' ]; then \
		set -x; $(WITH_ASAN) cargo test $(CARGO_FLAGS) --package arrow-dlpack --target $(SANITIZED_TARGET) --test hostile -- corpus::; \
	else echo 'LEFT OUT: the slice of AddressSanitizer (only on Linux on x86-64)'; fi

tsan-slice:
	@if $(call with_nightly,rust-src); then $(MAKE) --no-print-directory tsan TSAN_TESTS='$(TSAN_SLICE)'; \
	else echo 'LEFT OUT: the slice of ThreadSanitizer (rustup toolchain install nightly --component rust-src)'; fi

# Both models at once: Miri runs one test at a time, on one core. The standard library is built before, or both would build it.
miri-slice:
	@if $(call with_nightly,miri rust-src); then \
		cargo +nightly miri setup || exit 1; \
		started=; failed=; \
		for model in $(MIRI_MODELS); do \
			$(MAKE) --no-print-directory miri-$$model MIRI_TESTS='$(MIRI_SLICE)' & started="$$started $$!"; \
		done; \
		for process in $$started; do wait $$process || failed=1; done; test -z "$$failed"; \
	else echo 'LEFT OUT: the slice of Miri (rustup toolchain install nightly --component miri,rust-src)'; fi

# What the tests for AArch64 need on Debian and its kin.
aarch64-tools:
	sudo apt-get update
	sudo apt-get install --yes --no-install-recommends qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross

aarch64-slice:
	@if command -v $(AARCH64_QEMU) >/dev/null && command -v $(AARCH64_LINKER) >/dev/null && rustup target add $(AARCH64) >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory test-aarch64 AARCH64_TESTS='$(AARCH64_SLICE)'; \
	else echo 'LEFT OUT: the slice for AArch64 (Debian: qemu-user-static gcc-aarch64-linux-gnu; rustup)'; fi

# Everything that looks for faults without being told where. A failure does not stop the rest: the last lines say what passed.
campaign:
	@failed=; report=; \
	for step in $(CAMPAIGN); do \
		start=$$(date +%s); \
		if $(MAKE) --no-print-directory $$step CARGO_FLAGS='$(CARGO_FLAGS)' SECONDS=$(CAMPAIGN_SECONDS); then end=passed; \
		else end='FAILED OR LEFT OUT'; failed=1; fi; \
		report="$$report\n$$end  $$step  $$(($$(date +%s) - start)) s"; \
	done; \
	printf "The campaign:$$report\n"; test -z "$$failed"

# The library and the extension as other systems have them: their types, and no warning. Linking takes their tools; nothing runs.
check-platforms: $(STAMPS)/venv
	@for target in $(PLATFORMS); do \
		if ! test -d "$$(rustc --print sysroot)/lib/rustlib/$$target"; then \
			echo "LEFT OUT: the check for $$target (rustup target add $$target)"; exit 1; \
		fi; \
	done
	for target in $(PLATFORMS); do \
		RUSTFLAGS='-D warnings' cargo check $(CARGO_FLAGS) --target-dir $(CARGO_TARGET)/platforms --target $$target \
			--package arrow-dlpack --package arrow-dlpack-python --features arrow-dlpack/async,arrow-dlpack/ndarray || exit 1; \
	done

# $(call require,WHAT,COMMAND=PACKAGE ...,TARGET): fails, and says what to install, without these commands of Debian's packages or rustup's target.
define require
@lacks=; \
	for tool in $(2); do \
		command -v "$${tool%=*}" >/dev/null || lacks="$$lacks; $${tool%=*}: Debian's package $${tool#*=}"; \
	done; \
	test -d "$$(rustc --print sysroot)/lib/rustlib/$(3)" || lacks="$$lacks; rustup target add $(3)"; \
	if [ -n "$$lacks" ]; then echo "LEFT OUT: $(1) (install$${lacks#;})"; exit 1; fi
endef

# Our own crate is optimised, because qemu interprets: the checks of overflow stay. Clippy holds that target to no warning, too.
test-aarch64:
	$(call require,the tests for AArch64,$(AARCH64_QEMU)=qemu-user-static $(AARCH64_LINKER)=gcc-aarch64-linux-gnu,$(AARCH64))
	cargo clippy $(CARGO_FLAGS) --target $(AARCH64) --package arrow-dlpack --lib --features cuda -- -D warnings
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$(AARCH64_LINKER) \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='$(AARCH64_QEMU) -L /usr/aarch64-linux-gnu' \
		cargo test $(CARGO_FLAGS) --target $(AARCH64) --config profile.dev.package.arrow-dlpack.opt-level=1 \
		--package arrow-dlpack $(AARCH64_TESTS)

# The wheel for AArch64, linked against the old glibc, in a Python of that processor, which qemu may run: docs/testing.md says how to have one.
test-aarch64-wheel: $(STAMPS)/build $(STAMPS)/release
	@test -n '$(AARCH64_PYTHON)' || { \
		echo 'LEFT OUT: the wheel for AArch64 (pass AARCH64_PYTHON=<a command that runs a Python for AArch64 with the tests'"'"' libraries>)'; exit 1; }
	rm -rf $(AARCH64_WHEEL)
	PATH='$(CURDIR)/$(BIN)':"$$PATH" env -u PYO3_PYTHON $(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) --zig --compatibility $(MANYLINUX) \
		--target $(AARCH64) --manifest-path python/Cargo.toml --interpreter python3.11 --out $(AARCH64_WHEEL)
	$(BIN)/python -m zipfile -e $(AARCH64_WHEEL)/*.whl $(AARCH64_WHEEL)/site
	PYTHONPATH=$(AARCH64_WHEEL)/site ARROW_DLPACK_INTEROP=light $(AARCH64_PYTHON) -m pytest -p no:cacheprovider $(AARCH64_WHEEL_TESTS)

# A prefix of its own, so that Wine leaves the user's alone. Wine lets a process reserve terabytes and keeps a byte for each page, where Windows
# fails the allocation: with a limit on the address space, Wine fails it too.
test-windows:
	$(call require,the tests for Windows,$(WINE)=wine64 $(WINDOWS_LINKER)=gcc-mingw-w64-x86-64,$(WINDOWS))
	mkdir -p $(WINE_FILES)
	$(WINDOWS_LINKER) -shared -O1 -o $(WINE_FILES)/bcryptprimitives.dll tests/wine/bcryptprimitives.c -ladvapi32
	ulimit -v 67108864; WINEDEBUG=-all WINEPREFIX=$(WINE_FILES)/prefix WINEPATH='Z:$(WINE_FILES)' \
	CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=$(WINDOWS_LINKER) CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$(WINE) \
		cargo test $(CARGO_FLAGS) --target $(WINDOWS) --package arrow-dlpack --no-fail-fast $(WINDOWS_TESTS)

# A library that the tests use is built from C.
test-musl:
	$(call require,the tests for musl,musl-gcc=musl-tools,$(MUSL))
	CC_x86_64_unknown_linux_musl=musl-gcc \
		cargo test $(CARGO_FLAGS) --target $(MUSL) --package arrow-dlpack --no-fail-fast $(MUSL_TESTS)

# cargo-fuzz needs unstable flags of the compiler, and no more of a nightly than that.
fuzz: $(FUZZ_TOOLS)/bin/cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
		$(PYTHON) fuzz/corpus.py unpack $$target $(FUZZ_CORPUS)/$$target && \
		( cd fuzz && $(WITH_FUZZ) $(abspath $<) run $$target $(FUZZ_CORPUS)/$$target -- \
			-max_total_time=$(SECONDS) $(FUZZ_LIMITS) -print_final_stats=1 ) || exit 1; \
	done

# Keeps the cases that reach new code: the fewest, and of those the shortest.
fuzz-corpus: $(FUZZ_TOOLS)/bin/cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
		$(PYTHON) fuzz/corpus.py unpack $$target $(FUZZ_CORPUS)/$$target && \
		rm -rf $(FUZZ_CORPUS)/$$target.few && mkdir -p $(FUZZ_CORPUS)/$$target.few && \
		( cd fuzz && $(WITH_FUZZ) $(abspath $<) run $$target \
			$(FUZZ_CORPUS)/$$target.few $(FUZZ_CORPUS)/$$target -- -merge=1 $(FUZZ_LIMITS) ) && \
		$(PYTHON) fuzz/corpus.py pack $$target $(FUZZ_CORPUS)/$$target.few || exit 1; \
	done

# How much of each room the kept cases reach, by counters that stable rustc can compile in.
fuzz-coverage:
	$(PYTHON) fuzz/coverage.py --folder $(CARGO_TARGET)/coverage --show $(COVERAGE_FILES) \
		-- $(CARGO_FLAGS) --package arrow-dlpack $(COVERAGE_TESTS)

$(FUZZ_TOOLS)/bin/cargo-fuzz:
	cargo install cargo-fuzz --locked --version $(FUZZ_VERSION) --root $(FUZZ_TOOLS)

lint-rust: $(STAMPS)/venv
	cargo fmt --all --check
	cargo fmt --check --manifest-path tests/polars/Cargo.toml
	cargo clippy $(CARGO_FLAGS) --package arrow-dlpack --all-targets -- -D warnings
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets --all-features -- -D warnings
	for manifest in $(EXAMPLE_MANIFESTS); do cargo fmt --check --manifest-path $$manifest || exit 1; done
	for crate in $(EXTENSIONS); do \
		cargo fmt --manifest-path $$crate/Cargo.toml --check && \
		cargo clippy --locked --manifest-path $$crate/Cargo.toml --target-dir $(CARGO_TARGET) --all-targets -- -D warnings || exit 1; \
	done
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir $(CARGO_TARGET) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc $(CARGO_FLAGS) --workspace --all-features --no-deps
ifeq ($(PUBLIC_API),no)
	@echo 'LEFT OUT: the public API against docs/public-api (PUBLIC_API=no)'
else
	-@$(MAKE) --no-print-directory $(PUBLIC_API_TOOLS)/bin/cargo-public-api
	$(BIN)/python .ci/public_api.py $(PUBLIC_API_TOOLS)/bin/cargo-public-api
endif

# Most of the time that the wheel takes, one core compiles and links it: the others check the Rust code meanwhile.
lint-beside-wheel: $(STAMPS)/build
	@mkdir -p $(CARGO_TARGET); \
	$(MAKE) --no-print-directory $(STAMPS)/wheel >$(CARGO_TARGET)/wheel.log 2>&1 & wheel=$$!; \
	trap 'kill $$wheel 2>/dev/null; wait $$wheel; exit 1' INT TERM; \
	$(MAKE) --no-print-directory lint-rust || { kill $$wheel 2>/dev/null; wait $$wheel; exit 1; }; \
	wait $$wheel || { cat $(CARGO_TARGET)/wheel.log; exit 1; }

lint: lint-beside-wheel $(STAMPS)/installed $(STAMPS)/lint
	$(BIN)/ruff check --no-cache $(LINTED_PYTHON)
	$(BIN)/ruff format --check $(LINTED_PYTHON)
	@started=; failed=; \
	for check in lint-types lint-types-windows lint-stubs; do $(MAKE) --no-print-directory $$check & started="$$started $$!"; done; \
	for process in $$started; do wait $$process || failed=1; done; test -z "$$failed"
	$(BIN)/python .ci/dependencies.py

# `make lint` runs these at once, as each takes one core. A cache holds what was checked for one platform.
lint-types: $(STAMPS)/installed $(STAMPS)/lint
	$(BIN)/mypy --config-file python/pyproject.toml python/arrow_dlpack tests/python/typing_sample.py

lint-types-windows: $(STAMPS)/lint
	$(BIN)/mypy --config-file python/pyproject.toml --platform win32 --cache-dir .mypy_cache/win32 python/arrow_dlpack

lint-stubs: $(STAMPS)/installed $(STAMPS)/lint
	$(BIN)/python -m mypy.stubtest arrow_dlpack --mypy-config-file python/pyproject.toml --allowlist python/stubtest-allowlist.txt

# Read the diff before you commit it: a line that goes is a break for whoever calls it.
public-api: $(PUBLIC_API_TOOLS)/bin/cargo-public-api $(STAMPS)/venv
	$(BIN)/python .ci/public_api.py $< --write

# Not optimised: that halves the time of its build, and its own time is rustdoc's.
$(PUBLIC_API_TOOLS)/bin/cargo-public-api:
	CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-public-api --locked --debug --version $(PUBLIC_API_VERSION) --root $(PUBLIC_API_TOOLS)

# What deny.toml says of every crate that is linked into the wheel. The database of advisories is fetched anew at each run.
audit: $(DENY_TOOLS)/bin/cargo-deny
	$< --manifest-path python/Cargo.toml --config deny.toml --locked check bans licenses sources $(if $(ADVISORIES),advisories)

$(DENY_TOOLS)/bin/cargo-deny:
	cargo install cargo-deny --locked --version $(DENY_VERSION) --root $(DENY_TOOLS)

$(AUDITABLE_TOOLS)/bin/cargo-auditable:
	cargo install cargo-auditable --locked --version $(AUDITABLE_VERSION) --root $(AUDITABLE_TOOLS)

# With lock files of its own, in target/versions; it asks the registry.
check-versions: $(STAMPS)/venv
	$(BIN)/python .ci/versions.py $(if $(SLOW),--slow)

bench: $(STAMPS)/installed $(BENCH_SETS:%=$(STAMPS)/%)
	$(BIN)/python benches $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick) \
		$(if $(filter light,$(INTEROP)),--without torch$(comma)datasets)

# The wheel, the Rust tests as one stripped program, and the sections. The kernels are a part of the wheel.
gpu-bundle: $(STAMPS)/wheel
	rm -rf $(GPU_BUNDLE) && mkdir -p $(GPU_BUNDLE)/sections
	cargo test $(CARGO_FLAGS) --package arrow-dlpack --features cuda --release --test cuda --no-run --message-format=json \
		| $(BIN)/python tests/gpu/program.py $(GPU_BUNDLE)/cuda-tests
	cp dist/*.whl tests/gpu/run.py tests/gpu/report.py tests/gpu/README.md $(GPU_BUNDLE)
	cp tests/gpu/sections/*.py examples/cudf_interchange.py $(GPU_BUNDLE)/sections
	@git describe --always --dirty > $(GPU_BUNDLE)/MANIFEST
	@du -sh $(GPU_BUNDLE)

wheel: $(STAMPS)/wheel
	@ls -l dist/*.whl

# As somebody who has the commit and our word: two clones, in folders of two depths, and one hash.
reproducible:
	rm -rf $(REPRODUCED)
	for folder in one another/folder; do \
		git clone --quiet . $(REPRODUCED)/$$folder && \
		env -u CARGO_TARGET_DIR $(MAKE) --no-print-directory -C $(REPRODUCED)/$$folder wheel CARGO_FLAGS=--locked PYTHON='$(PYTHON)' || exit 1; \
	done
	cmp $(REPRODUCED)/one/dist/*.whl $(REPRODUCED)/another/folder/dist/*.whl
	rm -rf $(REPRODUCED)

# What the package index gets, tested as it is uploaded. zig links the wheel against an old glibc; maturin finds it in the PATH.
release: $(STAMPS)/build $(STAMPS)/release $(STAMPS)/test $(AUDITABLE_TOOLS)/bin/cargo-auditable
	rm -rf $(RELEASE) $(CARGO_TARGET)/release-site
	RUSTFLAGS="$(REMAPPED) $$RUSTFLAGS" $(AUDITABLE) \
		$(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) --zig --compatibility $(MANYLINUX) \
		--manifest-path python/Cargo.toml --interpreter $(BIN)/python --out $(RELEASE)
	$(if $(PYTHON_FREE),RUSTFLAGS="$(REMAPPED) $$RUSTFLAGS" $(AUDITABLE) \
		$(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) --zig --compatibility $(MANYLINUX) \
		--manifest-path python/Cargo.toml --interpreter $(PYTHON_FREE) --out $(RELEASE),\
		@echo 'LEFT OUT: the wheel for free-threaded Python (PYTHON_FREE=python3.14t)')
	$(BIN)/python .ci/audited.py $(RELEASE)/*.whl
	$(BIN)/python .ci/wheel.py $(RELEASE)/*.whl
	$(BIN)/maturin sdist --manifest-path python/Cargo.toml --out $(RELEASE)
	$(BIN)/twine check --strict $(RELEASE)/*
	$(BIN)/pip install --quiet --no-deps --target $(CARGO_TARGET)/release-site $(RELEASE)/*-abi3-*.whl
	PYTHONPATH=$(abspath $(CARGO_TARGET))/release-site ARROW_DLPACK_INTEROP=light $(BIN)/python -m pytest $(IN_PARALLEL) tests/python
	@ls -l $(RELEASE)

# The wheel for the system that this runs on, and its tests, the Rust ones first. On Linux it is for the same old glibc as that of `release`.
release-native: $(STAMPS)/build $(STAMPS)/test $(if $(OLD_GLIBC),$(STAMPS)/release)
	cargo test $(CARGO_FLAGS) --package arrow-dlpack --lib --test ownership
	rm -rf $(RELEASE) $(CARGO_TARGET)/release-site
	MACOSX_DEPLOYMENT_TARGET=$(MACOS) $(if $(OLD_GLIBC),PATH='$(CURDIR)/$(BIN)':"$$PATH") \
		$(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) $(OLD_GLIBC) \
		--manifest-path python/Cargo.toml --interpreter $(BIN)/python --out $(RELEASE)
	$(BIN)/pip install --quiet --no-deps --target $(CARGO_TARGET)/release-site $(RELEASE)/*.whl
	PYTHONPATH=$(abspath $(CARGO_TARGET))/release-site ARROW_DLPACK_INTEROP=light $(BIN)/python -m pytest $(IN_PARALLEL) tests/python

# The libraries that the tests use have few wheels for musl: a tensor each way with NumPy is tried there. That needs Docker.
release-musl: $(STAMPS)/build $(STAMPS)/release $(AUDITABLE_TOOLS)/bin/cargo-auditable
	rm -rf $(RELEASE)
	RUSTFLAGS="$(REMAPPED) $$RUSTFLAGS" $(AUDITABLE) \
		$(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) --zig --compatibility $(MUSLLINUX) --target x86_64-unknown-linux-musl \
		--manifest-path python/Cargo.toml --interpreter $(BIN)/python --out $(RELEASE)
	$(BIN)/python .ci/audited.py $(RELEASE)/*.whl
	@command -v docker >/dev/null && docker info >/dev/null 2>&1 || { echo 'LEFT OUT: the wheel on Alpine (it needs Docker)'; exit 1; }
	docker run --rm --volume '$(abspath $(RELEASE))':/wheels:ro --volume '$(CURDIR)/.ci':/ci:ro python:3.11-alpine \
		sh -c 'pip install --quiet numpy /wheels/*.whl && python /ci/smoke.py'

clean:
	rm -rf $(VENV) dist
	cargo clean

$(STAMPS)/venv:
	@command -v cargo >/dev/null || { echo 'error: cargo was not found; install stable Rust'; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo 'error: $(PYTHON) was not found; pass PYTHON=<a CPython from 3.11>'; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"error: $(PYTHON) is {v[0]}.{v[1]}, and 3.11 is needed; pass PYTHON=python3.12 or such")'
	$(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/%: $(REQUIREMENTS)/%.txt $(REQUIREMENTS)/constraints.txt | $(STAMPS)/venv
	$(BIN)/pip install $(if $(findstring heavy,$*)$(findstring torch,$*),,--quiet) --requirement $<
	@touch $@

# A wheel that was made with another value of WHEEL_LTO is made again before it is tested, measured or packed.
$(STAMPS)/wheel-lto-%:
	@mkdir -p $(STAMPS) && rm -f $(STAMPS)/wheel-lto-* && touch $@

# Not as an editable install: the tests see what a user gets, but for WHEEL_LTO.
$(STAMPS)/wheel: $(SOURCES) $(STAMPS)/build $(STAMPS)/wheel-lto-$(WHEEL_LTO)
	rm -rf dist
	CARGO_PROFILE_RELEASE_LTO=$(WHEEL_LTO) RUSTFLAGS="$(REMAPPED) $$RUSTFLAGS" $(BIN)/maturin build $(CARGO_FLAGS) $(MATURIN_WHEEL) \
		--manifest-path python/Cargo.toml --interpreter $(BIN)/python --out dist
	$(BIN)/python .ci/wheel.py dist/*.whl
	@touch $@

$(STAMPS)/installed: $(STAMPS)/wheel
	$(BIN)/pip install --quiet --force-reinstall --no-deps dist/*.whl
	@touch $@
