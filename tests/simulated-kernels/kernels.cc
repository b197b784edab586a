// The kernels of src/cuda/kernels.cu as functions of the host, for the simulated driver: the source that goes to the device,
// compiled by a C++ compiler. Global memory is reached through the driver's accessors alone, which know what a launch touches.
//
// Threads run one after the other, in another order in each block. Where a kernel has barriers, each thread of a block is a fiber,
// and a round runs every fiber to its next barrier, in another order in each round: a barrier that is missing shows, as does a
// thread that relies on an earlier one. Shared memory is poisoned before each block.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

namespace {

// The driver's side of a launch: tests/simulated-cuda/src/kernel.rs.
struct KernelContext {
    unsigned grid[3], block[3], shared;
    const unsigned char* (*read)(KernelContext*, unsigned long long, size_t);
    unsigned char* (*write)(KernelContext*, unsigned long long, size_t);
    void* inner;
};

const unsigned MISALIGNED_ADDRESS = 716;

struct Index { unsigned x, y, z; };
Index threadIdx, blockIdx, blockDim, gridDim;

KernelContext* context;
// What the launch fails with, and whether an accessor has found a fault, which the driver knows itself.
unsigned code;
bool has_faulted;

[[noreturn]] void broken(const char* what) {
    fprintf(stderr, "simulated kernels: %s\n", what);
    abort();
}

template <class T> bool is_reachable(const T* address) {
    if (has_faulted || code) return false;
    // A device would fault.
    if ((size_t)address % alignof(T) != 0) code = MISALIGNED_ADDRESS;
    return code == 0;
}

template <class T> T load(const T* from) {
    T value;
    memset((void*)&value, 0, sizeof value);
    if (!is_reachable(from)) return value;
    const unsigned char* bytes = context->read(context, (unsigned long long)from, sizeof value);
    has_faulted = !bytes;
    if (bytes) memcpy((void*)&value, bytes, sizeof value);
    return value;
}

void prefetch(const void*) {}

template <class T> void store(T* to, T value) {
    if (!is_reachable(to)) return;
    unsigned char* bytes = context->write(context, (unsigned long long)to, sizeof value);
    has_faulted = !bytes;
    if (bytes) memcpy(bytes, &value, sizeof value);
}

// Nothing comes between these accesses, as one thread runs at a time.
void add(unsigned long long* to, unsigned long long value) { store(to, load(to) + value); }
void lower(unsigned long long* to, unsigned long long value) { store(to, std::min(load(to), value)); }
void set(unsigned* word, unsigned bit) { *word |= bit; }

// ---- Orders ----

// The same in each process: a failure comes again.
unsigned long long draws = 0x9e3779b97f4a7c15;

unsigned below(unsigned limit) {
    draws ^= draws << 13;
    draws ^= draws >> 7;
    draws ^= draws << 17;
    return (unsigned)((draws >> 32) * limit >> 32);
}

// Makes `order` a random order of 0, 1 and so on.
void draw_order(std::vector<unsigned>& order, unsigned count) {
    order.resize(count);
    for (unsigned place = 0; place < count; place++) order[place] = place;
    for (unsigned place = count; place > 1; place--) std::swap(order[place - 1], order[below(place)]);
}

std::vector<unsigned> threads_in_order, blocks_in_order;

// ---- Shared memory ----

// The linker names the bounds of a section so.
extern "C" unsigned char __start_shared_memory[], __stop_shared_memory[];

void poison_shared_memory() {
    memset(__start_shared_memory, 0xa5, (size_t)(__stop_shared_memory - __start_shared_memory));
}

// ---- Fibers ----

enum State { RUNNING, AT_BARRIER, FINISHED };

struct Fiber {
    ucontext_t state;
    std::vector<char> stack;
    State at;
};

const unsigned MOST_THREADS = 1024, STACK = 64 << 10;
std::vector<Fiber> fibers;
ucontext_t scheduler;
Fiber* running;
void (*body)();

void yield(State at) {
    if (!running) broken("a barrier in a kernel that is said to have none");
    running->at = at;
    swapcontext(&running->state, &scheduler);
    running->at = RUNNING;
}

void __syncthreads() { yield(AT_BARRIER); }

// How many threads have said so on their way to this barrier, and at the one that all have reached.
int saying, said;

int __syncthreads_count(int says) {
    saying += says != 0;
    yield(AT_BARRIER);
    return said;
}

double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }

int __popc(unsigned word) { return __builtin_popcount(word); }

int __clz(unsigned word) { return word == 0 ? 32 : __builtin_clz(word); }

void run_fiber() {
    body();
    running->at = FINISHED;
    // The scheduler goes on: `uc_link`.
}

void run_block(unsigned threads) {
    fibers.resize(threads);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(STACK);
        fiber.at = RUNNING;
        getcontext(&fiber.state);
        fiber.state.uc_stack.ss_sp = fiber.stack.data();
        fiber.state.uc_stack.ss_size = fiber.stack.size();
        fiber.state.uc_link = &scheduler;
        makecontext(&fiber.state, run_fiber, 0);
    }
    for (;;) {
        size_t finished = 0, at_barrier = 0;
        draw_order(threads_in_order, threads);
        for (unsigned thread : threads_in_order) {
            Fiber& fiber = fibers[thread];
            if (fiber.at != FINISHED) {
                threadIdx = {thread, 0, 0};
                running = &fiber;
                swapcontext(&scheduler, &fiber.state);
                running = nullptr;
            }
            finished += fiber.at == FINISHED;
            at_barrier += fiber.at == AT_BARRIER;
        }
        said = std::exchange(saying, 0);
        if (finished == threads) return;
        if (at_barrier != 0 && at_barrier != threads) broken("a barrier that not all threads of the block reach");
    }
}

void run_grid(bool has_barriers) {
    for (unsigned y = 0; y < gridDim.y; y++) {
        draw_order(blocks_in_order, gridDim.x);
        for (unsigned x : blocks_in_order) {
            blockIdx = {x, y, 0};
            poison_shared_memory();
            if (has_barriers) {
                run_block(blockDim.x);
                continue;
            }
            draw_order(threads_in_order, blockDim.x);
            for (unsigned thread : threads_in_order) {
                threadIdx = {thread, 0, 0};
                body();
            }
        }
    }
}

}  // namespace

#define __device__
#define __global__
#define __launch_bounds__(threads, blocks)
#define __noinline__
#define __grid_constant__
#define __shared__ static __attribute__((section("shared_memory")))

namespace {
#include "kernels.cu"
}

// ---- The table that the driver reads ----

namespace {

template <auto FUNCTION, bool HAS_BARRIERS> struct Entry;

template <class... Arguments, void (*FUNCTION)(Arguments...), bool HAS_BARRIERS>
struct Entry<FUNCTION, HAS_BARRIERS> {
    static constexpr size_t sizes[] = {sizeof(Arguments)...};
    static inline const void* const* given;

    template <size_t... NUMBERS> static void call(std::index_sequence<NUMBERS...>) {
        FUNCTION(*(const std::remove_const_t<Arguments>*)given[NUMBERS]...);
    }

    static void thread() { call(std::index_sequence_for<Arguments...>()); }

    static unsigned launch(KernelContext* launched, const void* const* parameters) {
        context = launched;
        given = parameters;
        body = thread;
        code = 0;
        has_faulted = false;
        gridDim = {launched->grid[0], launched->grid[1], launched->grid[2]};
        blockDim = {launched->block[0], launched->block[1], launched->block[2]};
        if (gridDim.z != 1 || blockDim.y != 1 || blockDim.z != 1) broken("a launch in three dimensions");
        if (blockDim.x > THREADS) return 719;
        run_grid(HAS_BARRIERS);
        return code;
    }
};

}  // namespace

struct SimulatedKernel {
    const char* name;
    unsigned (*launch)(KernelContext*, const void* const*);
    size_t parameters;
    const size_t* sizes;
};

#define ENTRY(kernel, has_barriers) \
    {#kernel, Entry<kernel, has_barriers>::launch, std::size(Entry<kernel, has_barriers>::sizes), Entry<kernel, has_barriers>::sizes}
#define SIZES(prefix, has_barriers) \
    ENTRY(prefix##_1, has_barriers), ENTRY(prefix##_2, has_barriers), ENTRY(prefix##_4, has_barriers), ENTRY(prefix##_8, has_barriers)

extern "C" const SimulatedKernel simulated_kernels[] = {
    SIZES(pack_columns, false), ENTRY(pack_columns_16, false), ENTRY(cast_columns, false), ENTRY(pad_columns_16, false),
    SIZES(pack_rows, true),     ENTRY(pack_rows_16, true),     ENTRY(cast_rows, true),    ENTRY(cast_any, true),
    ENTRY(fill_nulls, false),   ENTRY(spread_rows, false),  ENTRY(copy_strided, true), ENTRY(transpose_4, false),
    ENTRY(store_table, false),  ENTRY(keep_misfits, false),  ENTRY(measure_rows, true), ENTRY(place_rows, false),
    ENTRY(shift_offsets, false), ENTRY(expand_runs, true),
    ENTRY(unpack_bits, false),  ENTRY(pack_bits, false),       ENTRY(count_nulls, true),
    ENTRY(join_validity, false), ENTRY(find_no_bool, false),   ENTRY(normalise_bools, false),
    {nullptr, nullptr, 0, nullptr},
};
