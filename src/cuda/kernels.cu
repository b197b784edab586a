// The kernels: Arrow's layouts to those of tensors and back, on the device.
//
// nvrtc compiles this file to kernels.ptx (`make ptx`). For the simulated driver a C++ compiler compiles it to host functions
// (tests/simulated-kernels), so kernels access global memory through `load`, `store`, `add`, `lower` and `prefetch` only.
//
// Every loop is a grid-stride loop over 64-bit indices: any grid gives the same result. Addresses of values may be misaligned,
// as Arrow only recommends alignment.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#ifdef __CUDACC_RTC__
template <class T> __device__ T load(const T* from) { return *from; }
template <class T> __device__ void store(T* to, T value) { *to = value; }
__device__ void add(u64* to, u64 value) { atomicAdd(to, value); }
__device__ void lower(u64* to, u64 value) { atomicMin(to, value); }
// x * y + z, rounded once.
__device__ double fused(double x, double y, double z) { return fma(x, y, z); }
// Has memory come nearer that is loaded soon; waits for nothing, and keeps no register for it.
__device__ void prefetch(const void* from) { asm volatile("prefetch.L1 [%0];" : : "l"(from)); }
#endif

// Threads per block, in every launch.
#define THREADS 256
// Bytes of shared memory for a tile of pack_rows: 128 rows of 128 bytes, and a vector of 16 bytes per row as padding.
#define TILE_BYTES 18432
// The elements of a column that a thread casts, and those of a row that a thread of place_rows writes.
#define LANES 4
// How many parts of rows a thread of pack_rows asks for before it needs the first, and vectors a thread of unpack_bits. More take registers,
// and leave room for fewer blocks on a multiprocessor.
#define ROUNDS 2
// The most words that one launch of store_table stores.
#define TABLE_WORDS 480
// So many resident blocks per multiprocessor leave enough registers that no kernel spills.
#define KERNEL_OF(blocks) extern "C" __global__ void __launch_bounds__(THREADS, blocks)
#define KERNEL KERNEL_OF(5)
#define EACH(index, count) \
    u64 index = blockIdx.x * (u64)blockDim.x + threadIdx.x; index < (count); index += gridDim.x * (u64)blockDim.x

// What the elements of a column are; src/cuda/kernels.rs has the same numbers.
enum DType {
    BITS, BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
    // Not cast: elements of the output's size, copied unchanged.
    SAME,
    // Unscaled integers: the value is the integer times ten to the power of minus the scale.
    DECIMAL32, DECIMAL64, DECIMAL128,
};

// The fields of Column::dtype: the dtype in the low bits, flags, and a signed scale of 8 bits above them.
#define DTYPE_BITS 31
#define SCALE_SHIFT 8
// Set if `values` is the address of a Dictionary, and the elements are the values that its codes select.
#define GATHERED 32
// Set if `values` is the address of a Dictionary, and the elements are its codes, null where the value of the code is null.
#define CODES 64
// Set with GATHERED if a code out of range stands for padding.
#define PADDED 128

// Set in Dictionary::code_dtype if the codes are run ends: the row after the last one of each run.
#define RUN_ENDS 32

// The codes of a column, and the values that they index; src/cuda/kernels.rs has the same words.
struct Dictionary {
    u64 codes;
    // The address of the first value; of bits, of the byte with bit `value_bit` of the column.
    u64 values;
    // The number of values; no other is read.
    u64 count;
    // The address of the byte with the first bit of the values' bitmap; 0 if no value is null.
    u64 validity;
    u32 validity_bit;
    u32 code_dtype;
    // With RUN_ENDS, the logical offset of the first row; with PADDED, the first bytes of the padding value. Those of a complex number
    // that follow are zero.
    u64 first;
};

// Ragged rows that are padded to one length; src/cuda/kernels/rows.rs has the same words.
struct Rows {
    // The addresses of the offsets and of the sizes of list views; `lengths` is 0 if each row ends at the next offset.
    u64 offsets;
    u64 lengths;
    // The address of the byte with the first bit of the rows' bitmap; 0 if no row is null.
    u64 validity;
    u32 validity_bit;
    u32 flags;
    // Items per padded row, and elements per item.
    u64 length;
    u64 per_item;
};

// The flags of Rows: 64-bit offsets, padding before the items, truncation at the front.
enum RowFlags { WIDE_OFFSETS = 1, PAD_FRONT = 2, CUT_FRONT = 4 };

// Why keep_misfits kept an element; src/kernels/check.rs has the same values.
enum Kind { VALUE, CODE, UNSIGNED_CODE, NULL_VALUE, NO_RUN, RUN_END };

// A column of a batch; src/cuda/kernels.rs has the same struct.
struct Column {
    // The address of the first element; of bits, of the byte with the first bit.
    u64 values;
    // The address of the byte with the first bit of the validity bitmap; 0 if no element is null.
    u64 validity;
    // If `is_filled`, null elements are written as the first bytes of this, as many as an element has.
    u64 fill[2];
    u32 value_bit;
    u32 validity_bit;
    u32 dtype;
    u32 is_filled;
};

// A level of nesting: `repeat` successive elements share `group` bits, and are valid if all of these are set.
struct Level {
    u64 bitmap;
    u64 first_bit;
    u64 repeat;
    u64 group;
};

// The most dimensions of a Strided, of which the first two are tiled.
#define DIMENSIONS 10
// log2 of the elements of a tile of copy_strided, and the most words of shared memory for it, with the padding of its rows.
#define STRIDED_BITS 10
#define STRIDED_WORDS 1536

// A strided source and its copy, with strides in bytes; src/cuda/kernels/strided.rs orders the dimensions, and has the same words. The
// first dimension has the smallest stride of the source, other than 0. If `is_across`, the second one has a smaller stride in the copy, and
// tiles are transposed.
struct Strided {
    u64 extents[DIMENSIONS];
    i64 steps[DIMENSIONS];
    i64 out_steps[DIMENSIONS];
    u32 dimensions;
    // log2 of a tile's extent in the first dimension.
    u32 bits;
    u32 is_across;
    // Bytes per word: 1, 2, 4 or 8.
    u32 size;
};

// The words that store_table stores. They are a kernel parameter, so the launch needs no pinned memory and no copy;
// src/cuda/kernels.rs has the same struct.
struct Table {
    u64 words[TABLE_WORDS];
};

// The tiles of pack_rows, which src/cuda/kernels.rs chooses.
struct Tile {
    // log2 of the number of rows, at least 5, so that a warp reads rows of one column.
    u32 row_bits;
    u32 columns;
    // Elements from one row of the tile to the next, in shared memory.
    u32 pitch;
    // Whether each row of a tile is whole, aligned vectors of 16 bytes, in shared memory and in the output.
    u32 is_vectors;
    // Whether nulls of a column are filled.
    u32 is_filled;
    // Whether each column is written by itself, in tiles of one column.
    u32 is_column_major;
};

template <class T> struct alignas(16) Vector {
    static const u32 LENGTH = 16 / sizeof(T);
    T lanes[16 / sizeof(T)];
};

// The elements that a thread loads at once: four of one or two bytes, otherwise a vector of 16 bytes.
template <class T> struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Part {
    static const u32 LENGTH = sizeof(T) < 4 ? 4 : 16 / sizeof(T);
    T lanes[sizeof(T) < 4 ? 4 : 16 / sizeof(T)];
};

struct alignas(16) Sixteen {
    u64 halves[2];
};

// ---- Bits ----

__device__ bool bit(u64 bitmap, u64 index) { return (load((const u8*)bitmap + (index >> 3)) >> (index & 7)) & 1; }

// Returns `count` bits, at most 16, in the low bits of a word. Reads no byte without one of them.
__device__ u32 bits(u64 bitmap, u64 index, u32 count) {
    const u8* bytes = (const u8*)bitmap + (index >> 3);
    u32 first = index & 7, last = first + count;
    u32 word = load(bytes);
    if (last > 8) word |= (u32)load(bytes + 1) << 8;
    if (last > 16) word |= (u32)load(bytes + 2) << 16;
    return (word >> first) & ((1u << count) - 1);
}

// Spreads four bits to four bytes of 0 or 1.
__device__ u32 spread(u32 four) { return ((four & 15) * 0x00204081u) & 0x01010101u; }

// Returns 1 for each byte of the word that is not 0, in that byte.
__device__ u32 truths(u32 word) { return ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7; }

// Returns a bit for each byte of the word, set if the byte is not 0: the product gathers the lowest bits of the bytes in the top four.
__device__ u32 truth_bits(u32 word) { return (truths(word) * 0x10204080u) >> 28; }

// ---- Values of any alignment ----

template <class T, class U> __device__ T same_bits(U from) {
    static_assert(sizeof(T) == sizeof(U), "as many bytes");
    union { U from; T to; } both;
    both.from = from;
    return both.to;
}

template <u32 SIZE> struct Bytes;
template <> struct Bytes<1> { typedef u8 Word; };
template <> struct Bytes<2> { typedef u16 Word; };
template <> struct Bytes<4> { typedef u32 Word; };
template <> struct Bytes<8> { typedef u64 Word; };

template <class T> __device__ T load_any(u64 address) {
    if (address % sizeof(T) == 0) return load((const T*)address);
    typename Bytes<sizeof(T)>::Word word = 0;
#pragma unroll 1
    for (u32 byte = sizeof(T); byte > 0; byte--) word = word << 8 | load((const u8*)address + byte - 1);
    return same_bits<T>(word);
}

// Loads an integer of 1, 2, 4 or 8 bytes. Not inlined, which keeps the kernels small.
__device__ __noinline__ u64 load_integer(u64 from, u32 bytes) {
    if (bytes == 2 && from % 2 == 0) return load((const u16*)from);
    if (bytes == 4 && from % 4 == 0) return load((const u32*)from);
    if (bytes == 8 && from % 8 == 0) return load((const u64*)from);
    u64 word = 0;
#pragma unroll 1
    for (u32 byte = bytes; byte > 0; byte--) word = word << 8 | load((const u8*)from + byte - 1);
    return word;
}

template <> __device__ Sixteen load_any<Sixteen>(u64 address) {
    if (address % 16 == 0) return load((const Sixteen*)address);
    return Sixteen{{load_any<u64>(address), load_any<u64>(address + 8)}};
}

// Whether `load_wide` may read 16 bytes at `from`: the address is aligned, or both aligned vectors around it lie between `first` and
// `end`.
__device__ bool is_wide(u64 from, u64 first, u64 end) {
    u64 start = from - from % 16;
    return from == start || (start >= first && start + 32 <= end);
}

// Loads 16 bytes from an address for which `is_wide` is true.
__device__ Vector<u32> load_wide(u64 from) {
    u32 skipped = from % 16, shift = skipped % 4 * 8;
    const Vector<u32>* start = (const Vector<u32>*)(from - skipped);
    Vector<u32> low = load(start);
    if (skipped == 0) return low;
    Vector<u32> high = load(start + 1);
    u32 words[8];
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        words[lane] = low.lanes[lane];
        words[4 + lane] = high.lanes[lane];
    }
    // Constant indices keep the words in registers. Threads that read one run of bytes have the same `skipped`, and do not diverge.
    if (skipped & 8) {
#pragma unroll
        for (u32 lane = 0; lane < 6; lane++) words[lane] = words[lane + 2];
    }
    if (skipped & 4) {
#pragma unroll
        for (u32 lane = 0; lane < 5; lane++) words[lane] = words[lane + 1];
    }
    Vector<u32> vector;
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        vector.lanes[lane] = (u32)(((u64)words[lane + 1] << 32 | words[lane]) >> shift);
    }
    return vector;
}

// ---- Words of 1, 2, 4 or 8 bytes ----

// A case for each size.
#define EACH_SIZE(size, use) \
    switch (size) { \
        case 1: use(u8) break; \
        case 2: use(u16) break; \
        case 4: use(u32) break; \
        default: use(u64) \
    }

__device__ void store_word(u64 to, u32 size, u64 word) {
    switch (size) {
        case 1: return store((u8*)to, (u8)word);
        case 2: return store((u16*)to, (u16)word);
        case 4: return store((u32*)to, (u32)word);
        default: return store((u64*)to, word);
    }
}

// ---- Lanes ----

// A thread casts up to LANES elements of a column, its lanes: in the kernels of frequent casts at once, so that their loads overlap.
#define ALL_LANES ((1u << LANES) - 1)
#define EACH_LANE _Pragma("unroll") for (u32 lane = 0; lane < LANES; lane++)

// cast_any casts one after the other. Each has a word of shared memory, as registers cannot be indexed at run time: for the place of its
// element, then for the element as the output has it.
__shared__ u64 slots[LANES * THREADS];

// Neighbouring threads have neighbouring words.
__device__ u64& slot(u32 lane) { return slots[lane * THREADS + threadIdx.x]; }

#include "kernel_casts.cuh"

// ---- Elements in the output's dtype ----

// The parameters that the pack and cast kernels share.
struct Job {
    const Column* columns;
    u32 count;
    // The dtype of the output.
    u32 to;
    // Bytes of an element of the output, at most 8 if it is cast.
    u32 size;
    // Per column, the lowest row number of a misfit; kernels only lower it.
    u64* misfits;
    // The row number of the first row of this launch.
    u64 first;
};

template <class Word> __device__ Word fill_of(const Column& column) { return *(const Word*)column.fill; }

// The values of Found::place for an element without a value: its code is out of range, its value is null, the run ends decrease, or
// it is padding.
#define OUTSIDE (~(u64)0)
#define AT_NULL (~(u64)1)
#define DECREASING (~(u64)2)
#define PADDING (~(u64)3)

// Returns the code of a row.
__device__ __noinline__ u64 code_of(u64 codes, u32 dtype, u64 row) {
    u32 bytes = stored_bytes(dtype);
    u64 code = load_integer(codes + bytes * row, bytes);
    // Sign extension makes a negative code larger than any count.
    u32 unused = 64 - 8 * bytes;
    return dtype < UINT8 ? (u64)((i64)(code << unused) >> unused) : code;
}

// Returns the run that contains a row, and is not before `low`. Also validates one run end, that with the row's number, so that the threads
// together check all.
__device__ __noinline__ u64 run_of(const Dictionary* dictionary, u64 row, u64 low) {
    u64 ends = load(&dictionary->codes);
    u32 dtype = load(&dictionary->code_dtype) & ~RUN_ENDS;
    if (row < load(&dictionary->count)) {
        i64 before = row == 0 ? 0 : code_of(ends, dtype, row - 1);
        if ((i64)code_of(ends, dtype, row) <= before) return DECREASING;
    }
    row += load(&dictionary->first);
    u64 high = load(&dictionary->count);
    // By steps that double: after the first search the run is near.
    for (u64 step = 1; low > 0 && low + step < high; step *= 2) {
        if (code_of(ends, dtype, low + step) > row) high = low + step;
        else low += step;
    }
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (code_of(ends, dtype, middle) > row) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Where `look_up` found an element: `place` elements after the address `values`, which is that of the codes if CODES is set.
struct Found {
    u64 values;
    u64 place;
};

// Of runs: none before `run` is looked at.
__device__ __noinline__ Found look_up(u64 address, u32 flags, u64 row, u64 run) {
    // Members are loaded one by one when needed: a copy of the struct would take registers of every caller.
    const Dictionary* dictionary = (const Dictionary*)address;
    u32 dtype = load(&dictionary->code_dtype);
    u64 code = dtype & RUN_ENDS ? run_of(dictionary, row, run) : code_of(load(&dictionary->codes), dtype, row);
    if (dtype & RUN_ENDS && code == DECREASING) return {0, DECREASING};
    if (code >= load(&dictionary->count)) return {load(&dictionary->first), flags & PADDED ? PADDING : OUTSIDE};
    u64 validity = load(&dictionary->validity);
    if (validity && !bit(validity, load(&dictionary->validity_bit) + code)) return {0, AT_NULL};
    if (flags & CODES) return {load(&dictionary->codes), row};
    return {load(&dictionary->values), code};
}

// Returns one element, or the fill value if it is null.
template <class Word> __device__ Word element(const Column& column, u64 row) {
    bool is_null = column.validity && column.is_filled && !bit(column.validity, column.validity_bit + row);
    return is_null ? fill_of<Word>(column) : load_any<Word>(column.values + sizeof(Word) * row);
}

// ---- Casts ----

// Turns the places of the lanes in `live` to the elements there, in the type `to`. Returns the lanes that fit.
__device__ u32 convert_lanes(u32 dtype, u64 values, u32 to, u32 size, u32 live) {
    u32 from = dtype & DTYPE_BITS, fitting = 0;
#pragma unroll 1
    for (u32 lane = 0; live >> lane != 0; lane++) {
        if (!(live >> lane & 1)) continue;
        u64 place = slot(lane);
        Number number = {0, carrier_of(from), true};
        if (from >= DECIMAL32) number = decimal_at(from, (i8)(dtype >> SCALE_SHIFT), to, values, place);
        else if (from == BITS) number.bits = bit(values, place);
        else {
            u32 bytes = from == SAME ? size : stored_bytes(from);
            u64 words[] = {load_integer(values + bytes * place, bytes)};
            carry(from, words);
            number.bits = words[0];
        }
        Cast cast = {number.bits, true};
        if (from != SAME) cast = cast_word(to, number.carrier, number.bits);
        slot(lane) = cast.word;
        fitting |= (u32)(number.fits && cast.fits) << lane;
    }
    return fitting;
}

// The lanes of a column of codes: those that have a value, whose places are in their slots, and those of the others that misfit. The
// slots of the others have what is written for them.
struct FoundLanes {
    u32 live;
    u32 misfits;
};

// Finds the values of the lanes in `live`, of which those in `valid` have a code.
__device__ FoundLanes find_lanes(const Column* column, u64 row, u32 apart, u32 live, u32 valid) {
    FoundLanes result = {0, 0};
    u64 run = 0;
#pragma unroll 1
    for (u32 lane = 0; live >> lane != 0; lane++) {
        // Arrow leaves the codes under nulls undefined.
        if (!(valid >> lane & 1)) {
            slot(lane) = load(column->fill);
            continue;
        }
        Found found = look_up(load(&column->values), load(&column->dtype), row + lane * apart, run);
        // Where run ends do not increase, a search of all may find another run, and keep_misfits searches all.
        if (found.place == OUTSIDE && run > 0) found = look_up(load(&column->values), load(&column->dtype), row + lane * apart, 0);
        if (found.place < PADDING) run = found.place;
        // Where a null value is no misfit; elsewhere nothing is at this place.
        u64 filled = load(&column->is_filled) ? AT_NULL : PADDING;
        u64 word = found.values;
        if (found.place < PADDING) {
            word = load(&column->value_bit) + found.place;
            result.live |= 1u << lane;
        } else if (found.place == AT_NULL) {
            word = load(column->fill);
        }
        if (found.place > PADDING && found.place != filled) result.misfits |= 1u << lane;
        slot(lane) = word;
    }
    return result;
}

// Those of the lanes in `live` whose elements of a column, in rows that are `apart`, are valid.
__device__ u32 valid_lanes(const Column* column, u64 row, u32 apart, u32 live) {
    u64 validity = load(&column->validity), first = load(&column->validity_bit) + row;
    u32 valid = live;
    if (validity) {
#pragma unroll 1
        for (u32 lane = 0; lane < LANES; lane++) {
            if (live >> lane & 1 && !bit(validity, first + lane * apart)) valid &= ~(1u << lane);
        }
    }
    return valid;
}

// Writes elements of a column, in rows that are `apart`, to the slots of the lanes in `live`: cast if the column's dtype asks for it, and
// the fill value if they are null. Returns the lanes that misfit.
// Members of the column are loaded one by one: a copy of the struct would take registers.
__device__ u32 cast_lanes(const Job& job, u32 number, u64 row, u32 apart, u32 live) {
    const Column* column = job.columns + number;
    u32 valid = valid_lanes(column, row, apart, live), dtype = load(&column->dtype);
    u64 values = load(&column->values);
    if (dtype & (GATHERED | CODES)) {
        FoundLanes found = find_lanes(column, row, apart, live, valid);
        live = found.live;
        valid = live | found.misfits;
        const Dictionary* dictionary = (const Dictionary*)values;
        values = dtype & CODES ? load(&dictionary->codes) : load(&dictionary->values);
    } else {
        if (load(&column->is_filled)) live = valid;
        u64 first = load(&column->value_bit) + row, null = load(column->fill);
#pragma unroll
        for (u32 lane = 0; lane < LANES; lane++) {
            slot(lane) = live >> lane & 1 ? first + lane * apart : null;
        }
    }
    u32 fitting = convert_lanes(dtype, values, job.to, job.size, live);
    return valid & ~fitting;
}

// Lowers the misfit of a column to the rows of these lanes.
__device__ void lower_misfits(const Job& job, u32 number, u64 row, u32 apart, u32 misfits) {
#pragma unroll 1
    for (u32 lane = 0; misfits >> lane != 0; lane++, row += apart) {
        if (misfits >> lane & 1) lower(job.misfits + number, job.first + row);
    }
}

// The lanes whose rows, which are `apart`, are among those that are left.
__device__ u32 live_lanes(u64 left, u32 apart) {
    if (left > (LANES - 1) * apart) return ALL_LANES;
    u32 live = 0;
    EACH_LANE live |= (u32)(lane * apart < (u32)left) << lane;
    return live;
}

// ---- Frequent casts ----
//
// Those that most data needs, in registers, and with all loads of values before the first cast, where cast_lanes takes words of shared memory
// for its many types. The host tells which they are: src/cuda/kernels/frequent.rs.

// Loads a word of 1, 2, 4 or 8 bytes for each lane.
__device__ void load_together(u64 from, u32 bytes, const u64 (&places)[LANES], u64 (&words)[LANES]) {
#define LOAD_ALL(Word) EACH_LANE words[lane] = load((const Word*)from + places[lane]);
    EACH_SIZE(bytes, LOAD_ALL)
#undef LOAD_ALL
}

// Returns the lanes that fit.
template <class Convert> __device__ u32 cast_all(u64 (&words)[LANES], Convert convert) {
    u32 fitting = 0;
    EACH_LANE {
        Cast cast = convert(words[lane]);
        words[lane] = cast.word;
        fitting |= (u32)cast.fits << lane;
    }
    return fitting;
}

template <class D> __device__ u32 cast_to_float(u32 from, u64 (&words)[LANES]) {
    if (from < FLOAT16) return cast_all(words, [](u64 word) { return cast_value<D>((i64)word); });
    if (from < FLOAT64) return cast_all(words, [](u64 word) { return cast_value<D>(same_bits<float>((u32)word)); });
    return cast_all(words, [](u64 word) { return cast_value<D>(same_bits<double>(word)); });
}

// From integers to those of any size, whose lowest bytes are stored; returns the lanes that fit.
__device__ u32 fitting_integers(u32 to, const u64 (&words)[LANES]) {
    u32 unused = 64 - 8 * stored_bytes(to), fitting = 0;
    bool is_signed = to <= INT64;
    i64 high = (i64)(~(u64)0 >> 1) >> (is_signed || to == UINT64 ? unused : unused - 1), low = is_signed ? -high - 1 : 0;
    EACH_LANE fitting |= (u32)((i64)words[lane] >= low && (i64)words[lane] <= high) << lane;
    return fitting;
}

// Casts words as they are stored, and returns the lanes that fit. No u64 is among them.
__device__ u32 cast_words(u32 from, u32 to, u64 (&words)[LANES]) {
    carry(from, words);
    if (to < FLOAT16) return fitting_integers(to, words);
    switch (to) {
        case FLOAT16: return cast_all(words, [](u64 word) { return cast_value<Half>(same_bits<float>((u32)word)); });
        case BFLOAT16: return cast_all(words, [](u64 word) { return cast_value<Brain>(same_bits<float>((u32)word)); });
        case FLOAT32: return cast_to_float<float>(from, words);
        default: return cast_to_float<double>(from, words);
    }
}

// Casts the elements of a column in the rows of the lanes in `live`, which are `apart`, to words. Returns the lanes that misfit.
__device__ u32 cast_together(const Job& job, const Column* column, u64 row, u32 apart, u32 live, u64 (&words)[LANES]) {
    u32 dtype = load(&column->dtype), from = dtype & DTYPE_BITS, outside = 0, nulls = 0;
    u64 values = load(&column->values), places[LANES], padding = 0;
    // Lanes that are not live load the first element again.
    EACH_LANE places[lane] = row + (live >> lane & 1 ? lane * apart : 0);
    if (dtype & GATHERED) {
        const Dictionary* dictionary = (const Dictionary*)values;
        u64 count = load(&dictionary->count);
        u32 code_dtype = load(&dictionary->code_dtype), bytes = stored_bytes(code_dtype);
        load_together(load(&dictionary->codes), bytes, places, words);
        // A negative code is larger than any count.
        u32 unused = code_dtype < UINT8 ? 64 - 8 * bytes : 0;
        EACH_LANE {
            u64 code = (u64)((i64)(words[lane] << unused) >> unused);
            outside |= (u32)(code >= count) << lane;
            places[lane] = code < count ? code : 0;
        }
        padding = load(&dictionary->first);
        values = load(&dictionary->values);
    }
    if (from == BITS) {
        u32 first = load(&column->value_bit);
        EACH_LANE words[lane] = load((const u8*)values + ((first + places[lane]) >> 3));
        EACH_LANE words[lane] = words[lane] >> ((first + places[lane]) & 7) & 1;
    } else {
        load_together(values, from == SAME ? job.size : stored_bytes(from), places, words);
    }
    u64 validity = load(&column->validity);
    if (validity) {
        u64 first = load(&column->validity_bit) + row;
        EACH_LANE if (live >> lane & 1) nulls |= (u32)!bit(validity, first + lane * apart) << lane;
    }
    u32 misfits = from == SAME ? 0 : ~cast_words(from, job.to, words) & ALL_LANES;
    if (outside) {
        misfits = dtype & PADDED ? misfits & ~outside : misfits | outside;
        EACH_LANE if (outside >> lane & 1) words[lane] = padding;
    }
    if (nulls && (dtype & GATHERED || load(&column->is_filled))) {
        u64 fill = load(column->fill);
        EACH_LANE if (nulls >> lane & 1) words[lane] = fill;
    }
    return misfits & ~nulls & live;
}

// ---- Column-major ----

// Fills the elements of a vector that are not valid.
template <class Word> __device__ void fill_vector(Vector<u32>* words, u32 valid, Word fill) {
    Vector<Word> vector = same_bits<Vector<Word>>(*words);
#pragma unroll
    for (u32 lane = 0; lane < Vector<Word>::LENGTH; lane++) {
        if (!(valid >> lane & 1)) vector.lanes[lane] = fill;
    }
    *words = same_bits<Vector<u32>>(vector);
}

// Of bytes, by words of four.
__device__ void fill_vector(Vector<u32>* words, u32 valid, u8 fill) {
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        u32 kept = spread(valid >> 4 * lane) * 0xff;
        words->lanes[lane] = (words->lanes[lane] & kept) | (fill * 0x01010101u & ~kept);
    }
}

// Each thread writes groups of 16 aligned bytes of the output; the first and the last group may be partial.
template <class Word> __device__ void pack_columns(const Job& job, u64 rows, Word* out, u64 stride) {
    const u32 length = Vector<Word>::LENGTH;
    for (u32 number = blockIdx.y; number < job.count; number += gridDim.y) {
        Column column = load(job.columns + number);
        Word* target = out + number * stride;
        u32 before = (u64)target % 16 / sizeof(Word);
        for (EACH(group, (rows + before + length - 1) / length)) {
            u64 start = group * length - before;
            u64 from = column.values + sizeof(Word) * start;
            if (start > rows || start + length > rows || !is_wide(from, column.values, column.values + sizeof(Word) * rows)) {
#pragma unroll 1
                for (u64 row = start > rows ? 0 : start; row < start + length && row < rows; row++) {
                    store(target + row, element<Word>(column, row));
                }
                continue;
            }
            u32 all = (1u << length) - 1, valid = all;
            if (column.validity && column.is_filled) valid = bits(column.validity, column.validity_bit + start, length);
            Vector<u32> words = load_wide(from);
            if (valid != all) fill_vector(&words, valid, fill_of<Word>(column));
            store((Vector<u32>*)(target + start), words);
        }
    }
}

// As pack_columns, with checked casts. Stores single elements: those of a thread are a block's width apart.
__device__ void cast_to_columns(const Job& job, u64 rows, u8* out, u64 stride) {
    for (u32 number = blockIdx.y; number < job.count; number += gridDim.y) {
        for (u64 row = blockIdx.x * (u64)(LANES * THREADS) + threadIdx.x; row < rows; row += gridDim.x * (u64)(LANES * THREADS)) {
            u64 words[LANES], target = (u64)out + (number * stride + row) * job.size;
            u32 live = live_lanes(rows - row, THREADS);
            u32 misfits = cast_together(job, job.columns + number, row, THREADS, live, words);
#define STORE_ALL(Word) EACH_LANE if (live >> lane & 1) store((Word*)target + lane * THREADS, (Word)words[lane]);
            EACH_SIZE(job.size, STORE_ALL)
#undef STORE_ALL
            if (misfits) lower_misfits(job, number, row, THREADS, misfits);
        }
    }
}

// As cast_columns, for the elements of 16 bytes of padded rows. The codes are those of place_rows, and nothing is cast to 16 bytes.
__device__ void pad_columns(const Job& job, u64 rows, Sixteen* out, u64 stride) {
    for (u32 number = blockIdx.y; number < job.count; number += gridDim.y) {
        Column column = load(job.columns + number);
        Dictionary places = load((const Dictionary*)column.values);
        for (EACH(row, rows)) {
            u64 code = places.code_dtype == UINT32 ? load((const u32*)places.codes + row) : load((const u64*)places.codes + row);
            Sixteen element = {{places.first, 0}};
            if (code < places.count) {
                element = fill_of<Sixteen>(column);
                if (!places.validity || bit(places.validity, places.validity_bit + code)) {
                    element = load_any<Sixteen>(places.values + 16 * code);
                } else if (!column.is_filled) {
                    lower(job.misfits + number, job.first + row);
                }
            }
            store(out + number * stride + row, element);
        }
    }
}

// ---- Row-major ----

// Loads the elements of one row in `count` successive columns, at most Part::LENGTH.
template <class Word> __device__ Part<Word> load_part(const Column* columns, u32 count, u64 row) {
    const u32 length = Part<Word>::LENGTH;
    u64 values[length];
    bool is_aligned = true;
#pragma unroll
    for (u32 lane = 0; lane < length; lane++) {
        // Lanes without a column load the first one again.
        u64 first = load(&columns[lane < count ? lane : 0].values);
        values[lane] = first + sizeof(Word) * row;
        is_aligned &= first % sizeof(Word) == 0;
    }
    Part<Word> part;
    // Uniform within a warp. Loads without a branch between them overlap.
    if (is_aligned) {
#pragma unroll
        for (u32 lane = 0; lane < length; lane++) part.lanes[lane] = load((const Word*)values[lane]);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < length; lane++) part.lanes[lane] = load_any<Word>(values[lane]);
    }
    return part;
}

// Writes the first `count` elements of a part to a row in shared memory.
template <class Word> __device__ void put_part(const Part<Word>& part, u32 count, Word* slot, bool is_vector) {
    if (is_vector) {
        *(Part<Word>*)slot = part;
        return;
    }
#pragma unroll
    for (u32 lane = 0; lane < Part<Word>::LENGTH; lane++) {
        if (lane < count) slot[lane] = part.lanes[lane];
    }
}

// Loads 16 bytes of shared memory that begin at any byte. Reads up to three bytes behind them.
__device__ Vector<u32> load_shared(const u8* from) {
    if ((u64)from % 16 == 0) return *(const Vector<u32>*)from;
    u32 skipped = (u64)from % 4, shift = skipped * 8;
    const u32* start = (const u32*)(from - skipped);
    Vector<u32> vector;
    u32 low = start[0];
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        u32 high = skipped == 0 && lane == 3 ? 0 : start[lane + 1];
        vector.lanes[lane] = (u32)(((u64)high << 32 | low) >> shift);
        low = high;
    }
    return vector;
}

// Writes a word to shared memory.
__device__ void put_word(u8* to, u32 size, u64 word) {
    switch (size) {
        case 1: *to = (u8)word; break;
        case 2: *(u16*)to = (u16)word; break;
        case 4: *(u32*)to = (u32)word; break;
        default: *(u64*)to = word;
    }
}

// Stores a word of shared memory.
__device__ void copy_word(const u8* from, u32 size, u8* to) {
    switch (size) {
        case 1: return store(to, *from);
        case 2: return store((u16*)to, *(const u16*)from);
        case 4: return store((u32*)to, *(const u32*)from);
        default: return store((u64*)to, *(const u64*)from);
    }
}

// Stores runs of bytes, as the `runs` rows of a tile in shared memory are, `pitch` bytes from one to the next there and `stride` in the
// output. A thread writes the part of a run that lies in one aligned vector of the output, in words of `size` where that is not whole.
__device__ void store_runs(const u8* shared, u32 pitch, u32 runs, u32 bytes, u32 size, u8* out, u64 stride) {
    // A run may begin and end inside a vector, which makes two partial groups.
    u32 groups = bytes / 16 + 2;
    for (u32 index = threadIdx.x; index < runs * groups; index += THREADS) {
        u32 run = index / groups, group = index % groups;
        u8* target = out + run * stride;
        const u8* source = shared + run * pitch;
        u32 before = (u64)target % 16, start = group * 16 - before;
        // Where the vector begins before the run, `start` is beyond its end.
        if (start < bytes && start + 16 <= bytes) {
            store((Vector<u32>*)(target + start), load_shared(source + start));
            continue;
        }
        // The first group begins with the run: `start` is below 0 there, and wraps around.
#pragma unroll 1
        for (u32 place = group == 0 ? 0 : start; place < bytes && (i32)(place - start) < 16; place += size) {
            copy_word(source + place, size, target + place);
        }
    }
}

// The part of a matrix that one block transposes through shared memory, so that both the reads of columns and the writes of rows are
// coalesced.
struct MatrixPart {
    u64 row;
    u32 column;
    u32 height;
    u32 width;
    // Steps from a tile of the block to its next one, and the columns after which the next row of tiles begins.
    u64 rows_on;
    u32 columns_on;
    u32 end;
};

// The block's current tile: shared, because all of its threads need it.
__shared__ MatrixPart part;

// Calls `read` for each tile of this block, which writes it to shared memory, and stores what it has written. `shared` has TILE_BYTES and
// a vector more, as load_shared reads behind the last row.
template <class Read> __device__ void write_tiles(u32 count, u64 rows, u32 size, u8* out, u64 stride, Tile tile, u8* shared, Read read) {
    u32 tall = 1u << tile.row_bits;
    auto cut = [&] {
        part.height = rows - part.row < tall ? (u32)(rows - part.row) : tall;
        part.width = count - part.column < tile.columns ? count - part.column : tile.columns;
    };
    if (threadIdx.x == 0) {
        u32 across = (count + tile.columns - 1) / tile.columns;
        // Divides once per block, and steps from tile to tile by additions.
        part.row = (u64)(blockIdx.x / across) << tile.row_bits;
        part.column = blockIdx.x % across * tile.columns;
        part.rows_on = (u64)(gridDim.x / across) << tile.row_bits;
        part.columns_on = gridDim.x % across * tile.columns;
        part.end = across * tile.columns;
        cut();
    }
    __syncthreads();
    while (part.row < rows) {
        read();
        __syncthreads();
        u8* target = out + (part.row * stride + part.column) * size;
        u32 pitch = tile.pitch * size, bytes = part.width * size, height = part.height;
        if (tile.is_vectors) {
            u32 vectors = bytes / 16;
            for (u32 index = threadIdx.x; index < height * vectors; index += THREADS) {
                u32 row = index / vectors, place = index % vectors * 16;
                store((Vector<u32>*)(target + row * stride * size + place), *(Vector<u32>*)(shared + row * pitch + place));
            }
        } else if (size < 16) {
            // A tile of all columns, without gaps between rows on either side, is one run of bytes.
            bool is_run = part.width == stride && bytes == pitch;
            u32 runs = is_run ? 1 : height, run = is_run ? height * bytes : bytes;
            store_runs(shared, pitch, runs, run, size, target, stride * size);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            part.row += part.rows_on;
            part.column += part.columns_on;
            if (part.column >= part.end) {
                part.column -= part.end;
                part.row += tall;
            }
            cut();
        }
        __syncthreads();
    }
}

// Calls `use` for each 16 rows of each column of the tile whose nulls are filled, with the column, its bitmap, the number of the first
// bit, and the first element's row and column in the tile.
template <class Use> __device__ void each_bitmap(const Job& job, Tile tile, Use use) {
    u32 row_bits = tile.row_bits - 4;
#pragma unroll 1
    for (u32 index = threadIdx.x; index < part.width << row_bits; index += THREADS) {
        u32 row = (index & ((1u << row_bits) - 1)) << 4, place = index >> row_bits;
        if (row >= part.height) continue;
        const Column* column = job.columns + part.column + place;
        u64 validity = load(&column->validity);
        if (validity == 0 || !load(&column->is_filled)) continue;
        use(column, validity, load(&column->validity_bit) + part.row + row, row, place);
    }
}

template <class Word> __device__ void pack_rows(const Job& job, u64 rows, Word* out, u64 stride, Tile tile) {
    __shared__ Vector<u32> memory[TILE_BYTES / 16 + 1];
    Word* shared = (Word*)memory;
    const u32 step = Part<Word>::LENGTH;
    write_tiles(job.count, rows, sizeof(Word), (u8*)out, stride, tile, (u8*)memory, [&] {
        if (tile.is_filled) {
            each_bitmap(job, tile, [&](const Column*, u64 validity, u64 first, u32, u32) {
                prefetch((const u8*)validity + (first >> 3));
            });
        }
        // Neighbouring threads read neighbouring rows of several columns.
        u32 end = ((part.width + step - 1) / step) << tile.row_bits;
#pragma unroll 1
        for (u32 first = threadIdx.x; first < end; first += ROUNDS * THREADS) {
            Part<Word> parts[ROUNDS];
#define EACH_ROUND(use) \
    _Pragma("unroll") for (u32 round = 0; round < ROUNDS; round++) { \
        u32 index = first + round * THREADS; \
        u32 row = index & ((1u << tile.row_bits) - 1), place = (index >> tile.row_bits) * step; \
        u32 count = part.width - place < step ? part.width - place : step; \
        if (index < end && row < part.height) use; \
    }
            EACH_ROUND(parts[round] = load_part<Word>(job.columns + part.column + place, count, part.row + row))
            EACH_ROUND(put_part<Word>(parts[round], count, shared + row * tile.pitch + place, tile.is_vectors))
#undef EACH_ROUND
        }
        if (!tile.is_filled) return;
        // Over the values, in shared memory: a load of the bitmap is for 16 of them, where one with the values would be for each.
        __syncthreads();
        each_bitmap(job, tile, [&](const Column* column, u64 validity, u64 first, u32 row, u32 place) {
            u32 count = part.height - row < 16 ? part.height - row : 16;
            u32 nulls = ~bits(validity, first, count) & ((1u << count) - 1);
            if (nulls == 0) return;
            Word fill = load((const Word*)column->fill);
#pragma unroll 1
            for (Word* slot = shared + row * tile.pitch + place; nulls != 0; nulls >>= 1, slot += tile.pitch) {
                if (nulls & 1) *slot = fill;
            }
        });
    });
}

// Calls `cast` for the lanes of a column of a tile: with the first row in the tile, the place of the column there, how far the rows are apart,
// and which there are. The rows of a thread are a quarter of a tile apart, and not less than a warp reads.
template <class Cast> __device__ void each_lanes(Tile tile, Cast cast) {
    u32 bits = tile.row_bits < 7 ? 5 : tile.row_bits - 2, apart = 1u << bits;
#pragma unroll 1
    for (u32 index = threadIdx.x; index < part.width << bits; index += THREADS) {
        u32 row = index & (apart - 1);
        if (row < part.height) cast(row, index >> bits, apart, live_lanes(part.height - row, apart));
    }
}

// As pack_rows, with checked casts, to elements of 1 to 8 bytes.
__device__ void cast_to_rows(const Job& job, u64 rows, u8* out, u64 stride, Tile tile, u8* shared) {
    write_tiles(job.count, rows, job.size, out, stride, tile, shared, [&] {
        each_lanes(tile, [&](u32 row, u32 place, u32 apart, u32 live) {
            u64 words[LANES];
            u32 number = part.column + place;
            u32 misfits = cast_together(job, job.columns + number, part.row + row, apart, live, words);
            u8* target = shared + (row * tile.pitch + place) * job.size;
#define PUT_ALL(Word) EACH_LANE if (live >> lane & 1) ((Word*)target)[lane * apart * tile.pitch] = (Word)words[lane];
            EACH_SIZE(job.size, PUT_ALL)
#undef PUT_ALL
            if (misfits) lower_misfits(job, number, part.row + row, apart, misfits);
        });
    });
}

// The same for any column; each column by itself if the output is column-major.
__device__ void cast_any_to_tiles(const Job& job, u64 rows, u8* out, u64 stride, Tile tile, u8* shared) {
    u32 end = tile.is_column_major ? job.count : 1, count = tile.is_column_major ? 1 : job.count;
    u64 on = tile.is_column_major ? stride * job.size : 0;
    if (tile.is_column_major) stride = 1;
#pragma unroll 1
    for (u32 first = blockIdx.y; first < end; first += gridDim.y) {
        write_tiles(count, rows, job.size, out + first * on, stride, tile, shared, [&] {
            each_lanes(tile, [&](u32 row, u32 place, u32 apart, u32 live) {
                u32 number = first + part.column + place;
                u32 misfits = cast_lanes(job, number, part.row + row, apart, live);
                if (misfits) lower_misfits(job, number, part.row + row, apart, misfits);
#pragma unroll 1
                for (u32 lane = 0; live >> lane != 0; lane++) {
                    put_word(shared + ((row + lane * apart) * tile.pitch + place) * job.size, job.size, slot(lane));
                }
            });
        });
        // All threads have left the tiles before the next column has its own.
        __syncthreads();
    }
}

// Packs columns into a column-major matrix, `stride` elements from one column to the next.
#define PACK_COLUMNS(name, pack, Word) \
    KERNEL name(const Column* columns, u32 count, u64 rows, Word* out, u64 stride, u64* misfits, u64 first) { \
        pack(Job{columns, count, SAME, sizeof(Word), misfits, first}, rows, out, stride); \
    }
PACK_COLUMNS(pack_columns_1, pack_columns, u8)
PACK_COLUMNS(pack_columns_2, pack_columns, u16)
PACK_COLUMNS(pack_columns_4, pack_columns, u32)
PACK_COLUMNS(pack_columns_8, pack_columns, u64)
PACK_COLUMNS(pack_columns_16, pack_columns, Sixteen)
PACK_COLUMNS(pad_columns_16, pad_columns, Sixteen)

// As pack_columns, with checked casts to elements of `size` bytes: `misfits` reports values out of range.
KERNEL cast_columns(
    const Column* columns, u32 count, u64 rows, u8* out, u64 stride, u64* misfits, u64 first, u32 to, u32 size
) {
    cast_to_columns(Job{columns, count, to, size, misfits, first}, rows, out, stride);
}

// Packs columns into a row-major matrix, `stride` elements from one row to the next.
#define PACK_ROWS(name, Word) \
    KERNEL name(const Column* columns, u32 count, u64 rows, Word* out, u64 stride, Tile tile) { \
        pack_rows(Job{columns, count, SAME, sizeof(Word), nullptr, 0}, rows, out, stride, tile); \
    }
PACK_ROWS(pack_rows_1, u8)
PACK_ROWS(pack_rows_2, u16)
PACK_ROWS(pack_rows_4, u32)
PACK_ROWS(pack_rows_8, u64)
PACK_ROWS(pack_rows_16, Sixteen)

// As pack_rows, with checked casts to elements of `size` bytes.
KERNEL cast_rows(
    const Column* columns, u32 count, u64 rows, u8* out, u64 stride, Tile tile, u64* misfits, u64 first, u32 to, u32 size
) {
    __shared__ Vector<u32> memory[TILE_BYTES / 16 + 1];
    cast_to_rows(Job{columns, count, to, size, misfits, first}, rows, out, stride, tile, (u8*)memory);
}

// As cast_rows and cast_columns, for any columns.
KERNEL_OF(4) cast_any(
    const Column* columns, u32 count, u64 rows, u8* out, u64 stride, Tile tile, u64* misfits, u64 first, u32 to, u32 size
) {
    __shared__ Vector<u32> memory[TILE_BYTES / 16 + 1];
    cast_any_to_tiles(Job{columns, count, to, size, misfits, first}, rows, out, stride, tile, (u8*)memory);
}

// ---- Tables, misfits and rows ----

// Stores the words of the parameter.
KERNEL store_table(const __grid_constant__ Table table, u32 words, u64* out) {
    for (EACH(index, words)) store(out + index, table.words[index]);
}

// Copies the first misfit of each column, if it is in a row of this launch, to 32 bytes per column, the last of which is its Kind.
KERNEL keep_misfits(const Column* columns, u32 count, u64 rows, u64 first, const u64* misfits, u8* values) {
    for (EACH(number, count)) {
        u64 misfit = load(misfits + number);
        if (misfit < first || misfit - first >= rows) continue;
        Column column = load(columns + number);
        u64 from = column.values, place = misfit - first;
        u32 dtype = column.dtype & DTYPE_BITS, bytes = stored_bytes(dtype);
        Kind kind = VALUE;
        if (column.dtype & (GATHERED | CODES)) {
            Dictionary dictionary = load((const Dictionary*)from);
            u64 row = place;
            Found found = look_up(from, column.dtype, row, 0);
            from = found.values;
            place = found.place;
            // Padding never misfits, so `misfits` has no row of it.
            if (place == AT_NULL || place == PADDING) kind = NULL_VALUE;
            if (place == OUTSIDE) kind = dictionary.code_dtype < UINT8 ? CODE : UNSIGNED_CODE;
            if (place == OUTSIDE && dictionary.code_dtype & RUN_ENDS) kind = NO_RUN;
            if (place == DECREASING) kind = RUN_END;
            if (kind == CODE || kind == UNSIGNED_CODE || kind == RUN_END) {
                u32 dtype = dictionary.code_dtype & ~RUN_ENDS;
                store((u64*)(values + 32 * number), code_of(dictionary.codes, dtype, row));
            }
        }
#pragma unroll 1
        for (u32 byte = 0; kind == VALUE && byte < bytes; byte++) {
            store(values + 32 * number + byte, load((const u8*)from + place * bytes + byte));
        }
        store(values + 32 * number + 31, (u8)kind);
    }
}

// A row as its offsets describe it.
struct Row {
    u64 start;
    u64 length;
    bool is_null;
};

__device__ u64 offset_of(u64 offsets, bool is_wide, u64 row) {
    // Sign extension makes a negative offset larger than any position.
    return is_wide ? load_any<u64>(offsets + 8 * row) : (u64)(i64)load_any<i32>(offsets + 4 * row);
}

__device__ Row row_of(const Rows& rows, u64 row) {
    bool is_wide = rows.flags & WIDE_OFFSETS;
    u64 start = offset_of(rows.offsets, is_wide, row);
    u64 length = rows.lengths ? offset_of(rows.lengths, is_wide, row) : offset_of(rows.offsets, is_wide, row + 1) - start;
    return {start, length, rows.validity && !bit(rows.validity, rows.validity_bit + row)};
}

// Returns the largest `own` of a block to its first thread.
__device__ u64 largest(u64 own) {
    __shared__ u64 numbers[THREADS];
    __syncthreads();
    numbers[threadIdx.x] = own;
    __syncthreads();
#pragma unroll 1
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && numbers[threadIdx.x] < numbers[threadIdx.x + half]) {
            numbers[threadIdx.x] = numbers[threadIdx.x + half];
        }
        __syncthreads();
    }
    return numbers[0];
}

// Lowers the five numbers of `found` to what it finds in the rows: the complement of the largest length, the first row whose offsets are
// out of bounds of `items`, the first row with more items than `most`, the first null row, and the complement of the largest end.
// Writes to `kept` how many items each row keeps: at most `most`, and none of a null row. Either address may be 0.
KERNEL measure_rows(const __grid_constant__ Rows rows, u64 count, u64 items, u64 most, u64* found, i64* kept) {
    u64 longest = 0, outside = ~(u64)0, longer = ~(u64)0, null = ~(u64)0, end = 0;
    for (EACH(row, count)) {
        Row own = row_of(rows, row);
        // Negative numbers exceed `items`, as they are unsigned here. A thread visits its rows in ascending order.
        bool fits = own.start <= items && own.length <= items - own.start;
        if (fits && end < own.start + own.length) end = own.start + own.length;
        if (!fits && outside > row) outside = row;
        if (own.is_null) {
            if (null > row) null = row;
            own.length = 0;
        }
        if (fits && longest < own.length) longest = own.length;
        if (own.length > most && longer > row) longer = row;
        if (kept) store(kept + row, (i64)(!fits ? 0 : own.length < most ? own.length : most));
    }
    if (!found) return;
    if (outside != ~(u64)0) lower(found + 1, outside);
    if (longer != ~(u64)0) lower(found + 2, longer);
    if (null != ~(u64)0) lower(found + 3, null);
    longest = largest(longest);
    end = largest(end);
    if (threadIdx.x == 0 && longest != 0) lower(found, ~longest);
    if (threadIdx.x == 0 && end != 0) lower(found + 4, ~end);
}

// Writes for each element of the padded rows its index among the `limit` elements of all items, as a code of 32 or 64 bits, all ones for
// padding. Writes a bool for each to `mask`, true if the element exists and is valid. Each address may be 0. A thread writes LANES elements of
// a row.
KERNEL place_rows(
    const __grid_constant__ Rows rows, u64 count, u64 limit, u64 validity, u64 first_bit, u32* narrow, u64* wide, u8* mask
) {
    u64 per_item = rows.per_item, width = rows.length * per_item, pieces = (width + LANES - 1) / LANES;
    u64 step = gridDim.x * (u64)blockDim.x, index = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    // Divides once per thread, and steps from piece to piece by additions.
    u64 row = index / pieces, piece = index - row * pieces, rows_on = step / pieces, pieces_on = step - rows_on * pieces;
    for (; row * width < count; row += rows_on) {
        Row own = row_of(rows, row);
        // The host has refused the negative lengths that measure_rows found; only memory that changed since has one.
        if (own.is_null || (i64)own.length < 0) own.length = 0;
        u64 shown = own.length < rows.length ? own.length : rows.length;
        if (rows.flags & CUT_FRONT) own.start += own.length - shown;
        // The position of the piece's first element behind the row's first one: beyond its end if it is before that.
        u64 first = piece * LANES - (rows.flags & PAD_FRONT ? (rows.length - shown) * per_item : 0);
        u64 start = own.start * per_item + first, place = row * width + piece * LANES, left = width - piece * LANES;
        auto code = [&](u32 lane) { return first + lane < shown * per_item && start + lane < limit ? start + lane : ~(u64)0; };
        bool is_vector = left >= LANES && ((u64)narrow + 4 * place) % 16 == 0;
        if (narrow && is_vector) {
            Vector<u32> codes;
            EACH_LANE codes.lanes[lane] = (u32)code(lane);
            store((Vector<u32>*)(narrow + place), codes);
            if (!wide && !mask) left = 0;
        }
#pragma unroll 1
        for (u32 lane = 0; lane < LANES && lane < left; lane++) {
            u64 own_code = code(lane);
            if (narrow && !is_vector) store(narrow + place + lane, (u32)own_code);
            if (wide) store(wide + place + lane, own_code);
            bool is_valid = own_code != ~(u64)0 && (!mask || !validity || bit(validity, first_bit + own_code));
            if (mask) store(mask + place + lane, (u8)is_valid);
        }
        piece += pieces_on;
        if (piece >= pieces) {
            piece -= pieces;
            row++;
        }
    }
}

// Copies contiguous rows of `width` bytes to rows that start `stride` bytes apart. A thread writes the part of a row that lies in one
// aligned vector of the output.
KERNEL spread_rows(const u8* from, u64 rows, u64 width, u8* out, u64 stride) {
    // A row may begin and end inside a vector, which makes two partial groups.
    u64 groups = width / 16 + 2, step = gridDim.x * (u64)blockDim.x;
    u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    // Divides once per thread, and steps from element to element by additions.
    u64 row = thread / groups, group = thread % groups, rows_on = step / groups, groups_on = step % groups;
    u64 first = (u64)from, end = first + rows * width;
    while (row < rows) {
        u8* target = out + row * stride;
        const u8* source = from + row * width;
        u64 start = group * 16 - (u64)target % 16;
        u64 address = (u64)(source + start);
        if (start < width && start + 16 <= width && is_wide(address, first, end)) {
            store((Vector<u32>*)(target + start), load_wide(address));
        } else {
#pragma unroll 1
            for (u32 lane = 0; lane < 16; lane++) {
                if (start + lane < width) store(target + start + lane, load(source + start + lane));
            }
        }
        row += rows_on;
        group += groups_on;
        if (group >= groups) {
            group -= groups;
            row++;
        }
    }
}

// The words of a tile that a thread reads or writes: how many there are across and down, and their bytes and words of shared memory from one to the
// next. 1 << `bits` are in a row.
struct Words {
    u32 bits;
    u32 width;
    u32 height;
    u32 pitch;
    u32 row_pitch;
    u64 address;
    i64 step;
    i64 row_step;
};

// Calls `use` for each of them, with its number, whether it is inside, its address, and its place in shared memory.
template <u32 UNROLLED, class Use> __device__ void each_word(const Words& words, Use use) {
    u32 x = threadIdx.x & ((1 << words.bits) - 1), y = threadIdx.x >> words.bits;
    // To the next word, THREADS further on: by additions, as products of 64 bits take several times as long.
    u32 across = words.bits > 8 ? THREADS : 0, down = THREADS >> words.bits;
    u64 address = words.address + x * words.step + y * words.row_step;
    i64 next = across * words.step + down * words.row_step;
#pragma unroll UNROLLED
    for (u32 part = 0; part < (1 << STRIDED_BITS) / THREADS; part++) {
        use(part, x < words.width && y < words.height, address, x * words.pitch + y * words.row_pitch);
        x += across;
        y += down;
        address += next;
        if (x >> words.bits) {
            x -= 1 << words.bits;
            y++;
            address += words.row_step - words.step * (1 << words.bits);
        }
    }
}

// Copies strided words, one two-dimensional tile per block, by way of shared memory. Neighbouring threads read neighbouring words and write
// neighbouring words: if `is_across`, the tile is transposed for that.
KERNEL_OF(6) copy_strided(const __grid_constant__ Strided shape, u32 tiles, u64 from, u64 out) {
    __shared__ u64 tile[STRIDED_WORDS];
    const u32 parts = (1 << STRIDED_BITS) / THREADS;
    u32 bits = shape.bits, row_bits = STRIDED_BITS - bits, pitch = (1 << bits) | 1;
    for (u64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        // 32-bit divisions: 64-bit ones take several times as long.
        u32 rest = (u32)number, columns = 0, rows = 0;
        u64 source = from, target = out;
#pragma unroll 1
        for (u32 dimension = 0; dimension < shape.dimensions; dimension++) {
            u32 tile_bits = 0;
            if (dimension == 0) tile_bits = bits;
            if (dimension == 1) tile_bits = row_bits;
            u64 length = shape.extents[dimension];
            u32 extent = (u32)((length + (1 << tile_bits) - 1) >> tile_bits);
            u32 next = rest / extent;
            u64 place = (u64)(rest - next * extent) << tile_bits, left = length - place;
            u32 inside = left < (1 << STRIDED_BITS) ? (u32)left : 1 << STRIDED_BITS;
            if (dimension == 0) columns = inside;
            if (dimension == 1) rows = inside;
            source += place * shape.steps[dimension];
            target += place * shape.out_steps[dimension];
            rest = next;
        }
        u64 words[parts];
        u32 there = 0;
        Words read = {bits, columns, rows, 1, pitch, source, shape.steps[0], shape.steps[1]};
        each_word<parts>(read, [&](u32 part, bool is_inside, u64 address, u32) {
            words[part] = address;
            there |= (u32)is_inside << part;
        });
        // One case for all words, so that no branch is between the loads.
#define LOAD_ALL(Word) \
    _Pragma("unroll") for (u32 part = 0; part < parts; part++) { \
        if (there >> part & 1) words[part] = load((const Word*)words[part]); \
    }
        EACH_SIZE(shape.size, LOAD_ALL)
#undef LOAD_ALL
        each_word<parts>(read, [&](u32 part, bool, u64, u32 place) { tile[place] = words[part]; });
        Words written = {bits, columns, rows, 1, pitch, target, shape.out_steps[0], shape.out_steps[1]};
        if (shape.is_across) written = {row_bits, rows, columns, pitch, 1, target, shape.out_steps[1], shape.out_steps[0]};
        __syncthreads();
        each_word<1>(written, [&](u32, bool is_inside, u64 address, u32 place) {
            if (is_inside) store_word(address, shape.size, tile[place]);
        });
        // All threads have read the tile before the next one overwrites it.
        __syncthreads();
    }
}

// Copies a matrix with `step` bytes from row to row so that each column is contiguous, `out_step` bytes from one to the next. The rows are a
// multiple of LANES, and the columns of the copy aligned to their vectors. A thread turns a square of LANES rows and columns in registers;
// 1 << `bits` squares are beside each other in a block, so that the warps read and write whole sectors of 32 bytes: squares share those that they
// read, which the cache keeps.
KERNEL transpose_4(u64 from, u64 step, u32 rows, u32 columns, u64 out, u64 out_step, u32 bits) {
    u32 across = (columns + (LANES << bits) - 1) / (LANES << bits), down_bits = 8 - bits;
    for (u32 number = blockIdx.x; (number / across << down_bits) * LANES < rows; number += gridDim.x) {
        u32 down = number / across, right = number - down * across;
        u32 row = ((down << down_bits) + (threadIdx.x >> bits)) * LANES;
        u32 column = ((right << bits) + (threadIdx.x & ((1 << bits) - 1))) * LANES;
        if (row >= rows || column >= columns) continue;
        u32 last = columns - column < LANES ? columns - column - 1 : LANES - 1;
        Vector<u32> square[LANES];
        EACH_LANE {
            // Beyond the last column, that one again.
            u64 word = from + row * step + (column + (lane < last ? lane : last)) * (u64)4;
#pragma unroll
            for (u32 line = 0; line < LANES; line++, word += step) square[lane].lanes[line] = load((const u32*)word);
        }
        u64 target = out + column * out_step + row * (u64)4;
        EACH_LANE if (lane <= last) store((Vector<u32>*)(target + lane * out_step), square[lane]);
    }
}

// ---- Bits and bytes ----

// Unpacks bits to bytes of 0 or 1, as DLPack's bools are bytes. A thread writes 16 of them at once, and again a block's width further on.
KERNEL unpack_bits(const u8* bitmap, u64 first_bit, u64 count, u8* out) {
    u32 before = (u64)out % 16;
    u64 groups = (count + before + 15) / 16, step = gridDim.x * (u64)(ROUNDS * THREADS);
    for (u64 first = blockIdx.x * (u64)(ROUNDS * THREADS) + threadIdx.x; first < groups; first += step) {
        u32 words[ROUNDS];
#pragma unroll
        for (u32 round = 0; round < ROUNDS; round++) {
            // Where the vector begins before the output, `start` is beyond its end.
            u64 start = (first + round * THREADS) * 16 - before;
            if (start < count && count - start >= 16) words[round] = bits((u64)bitmap, first_bit + start, 16);
        }
#pragma unroll
        for (u32 round = 0; round < ROUNDS; round++) {
            u64 start = (first + round * THREADS) * 16 - before;
            if (start < count && count - start >= 16) {
                u32 word = words[round];
                Vector<u32> vector = {{spread(word), spread(word >> 4), spread(word >> 8), spread(word >> 12)}};
                store((Vector<u32>*)(out + start), vector);
                continue;
            }
#pragma unroll 1
            for (u32 lane = 0; lane < 16; lane++) {
                if (start + lane < count) store(out + start + lane, (u8)bit((u64)bitmap, first_bit + start + lane));
            }
        }
    }
}

// Packs bytes to bits, set if the byte is not 0, as Arrow's booleans are bits. The unused bits of the last byte are 0. A thread reads 16
// bytes at once, to keep enough loads in flight, and writes two.
KERNEL pack_bits(const u8* bytes, u64 count, u8* out) {
    bool is_even = (u64)out % 2 == 0;
    u64 first = (u64)bytes;
    for (EACH(group, (count + 15) / 16)) {
        u64 start = 16 * group;
        u32 packed = 0;
        if (start + 16 <= count && is_wide(first + start, first, first + count)) {
            Vector<u32> words = load_wide(first + start);
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) packed |= truth_bits(words.lanes[lane]) << 4 * lane;
        } else {
#pragma unroll 1
            for (u32 lane = 0; lane < 16; lane++) {
                if (start + lane < count) packed |= (u32)(load(bytes + start + lane) != 0) << lane;
            }
        }
        if (is_even && start + 8 < count) {
            store((u16*)(out + 2 * group), (u16)packed);
            continue;
        }
        store(out + 2 * group, (u8)packed);
        if (start + 8 < count) store(out + 2 * group + 1, (u8)(packed >> 8));
    }
}

// Adds to `nulls`, for each bitmap of the table, the number of its bits that are not set. A bitmap has three words: its address, its
// first bit, and its number of bits. Each block does one atomic addition.
KERNEL count_nulls(const __grid_constant__ Table bitmaps, u64* nulls) {
    __shared__ u64 sums[THREADS];
    u64 bitmap = bitmaps.words[3 * blockIdx.y], first_bit = bitmaps.words[3 * blockIdx.y + 1];
    u64 count = bitmaps.words[3 * blockIdx.y + 2];
    u64 first = bitmap + first_bit / 8, last = bitmap + (first_bit + count + 7) / 8;
    u64 start = first - first % 16, set = 0;
    // An empty bitmap may have no memory.
    for (EACH(group, count == 0 ? 0 : (last - start + 15) / 16)) {
        u64 from = start + 16 * group;
        u64 low = (from - bitmap) * 8;
        if (from >= first && from + 16 <= last && low >= first_bit && low + 128 <= first_bit + count) {
            Vector<u32> words = load((const Vector<u32>*)from);
            for (u32 lane = 0; lane < 4; lane++) set += __popc(words.lanes[lane]);
            continue;
        }
#pragma unroll 1
        for (u64 byte = from < first ? first : from; byte < from + 16 && byte < last; byte++) {
            u32 word = load((const u8*)byte);
            u64 bit = (byte - bitmap) * 8;
            if (bit < first_bit) word &= 0xffu << (first_bit - bit);
            if (bit + 8 > first_bit + count) word &= 0xffu >> (bit + 8 - first_bit - count);
            set += __popc(word);
        }
    }
    sums[threadIdx.x] = set;
    __syncthreads();
#pragma unroll 1
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    // The first block adds the number of bits, and every block subtracts the set bits that it counted.
    u64 found = (blockIdx.x == 0 ? count : 0) - sums[0];
    if (threadIdx.x == 0 && found != 0) add(nulls + blockIdx.y, found);
}

// Joins the bitmaps of all levels into one with a bit per element, set if the element is valid at every level. The unused bits of the
// last byte are 0.
KERNEL join_validity(const Level* levels, u32 level_count, u64 elements, u8* out) {
    for (EACH(byte, (elements + 7) / 8)) {
        u32 word = 0;
#pragma unroll 1
        for (u32 lane = 0; lane < 8 && 8 * byte + lane < elements; lane++) {
            bool is_valid = true;
            for (u32 number = 0; number < level_count && is_valid; number++) {
                Level level = load(levels + number);
                u64 first = level.first_bit + (8 * byte + lane) / level.repeat * level.group;
                for (u64 place = 0; place < level.group && is_valid; place++) is_valid = bit(level.bitmap, first + place);
            }
            word |= (u32)is_valid << lane;
        }
        store(out + byte, (u8)word);
    }
}

// Overwrites null bools with `fill`, in place, as Arrow leaves the values under nulls undefined, and leaves valid ones as they are. A thread
// reads the bits of 16 of them at once, and rewrites these if one is null.
KERNEL fill_nulls(u8* bools, const u8* validity, u64 first_bit, u64 count, u32 fill) {
    u32 before = (u64)bools % 16;
    for (EACH(group, (count + before + 15) / 16)) {
        u64 start = group * 16 - before;
        if (start > count || start + 16 > count) {
#pragma unroll 1
            for (u32 lane = 0; lane < 16; lane++) {
                u64 index = start + lane;
                if (index < count && !bit((u64)validity, first_bit + index)) store(bools + index, (u8)fill);
            }
            continue;
        }
        u32 valid = bits((u64)validity, first_bit + start, 16);
        if (valid == 0xffff) continue;
        Vector<u32>* place = (Vector<u32>*)(bools + start);
        Vector<u32> words = load(place);
        fill_vector(&words, valid, (u8)fill);
        store(place, words);
    }
}

// Lowers `found` to the index of the first byte that is neither 0 nor 1: a column of arrow.bool8 without one can be a view.
KERNEL find_no_bool(const u8* bytes, u64 count, u64* found) {
    u32 before = (u64)bytes % 16;
    for (EACH(group, (count + before + 15) / 16)) {
        u64 start = group * 16 - before;
        if (start <= count && start + 16 <= count) {
            Vector<u32> words = load((const Vector<u32>*)(bytes + start));
            u32 seen = words.lanes[0] | words.lanes[1] | words.lanes[2] | words.lanes[3];
            if (!(seen & 0xfefefefeu)) continue;
        }
#pragma unroll 1
        for (u32 lane = 0; lane < 16; lane++) {
            if (start + lane < count && load(bytes + start + lane) > 1) {
                lower(found, start + lane);
                break;
            }
        }
    }
}

// Writes bytes as bools of 0 or 1: in arrow.bool8 every byte but 0 is true, and consumers of DLPack expect 1.
KERNEL normalise_bools(const u8* bytes, u64 count, u8* out) {
    u32 before = (u64)out % 16;
    for (EACH(group, (count + before + 15) / 16)) {
        u64 start = group * 16 - before;
        u64 from = (u64)bytes + start;
        if (start > count || start + 16 > count || !is_wide(from, (u64)bytes, (u64)bytes + count)) {
#pragma unroll 1
            for (u32 lane = 0; lane < 16; lane++) {
                if (start + lane < count) store(out + start + lane, (u8)(load(bytes + start + lane) != 0));
            }
            continue;
        }
        Vector<u32> words = load_wide(from);
        for (u32 lane = 0; lane < 4; lane++) words.lanes[lane] = truths(words.lanes[lane]);
        store((Vector<u32>*)(out + start), words);
    }
}
