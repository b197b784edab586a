// What the host hands to kernels, and how these access global memory: types, flags and structs.

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
// Sets a bit of a word in shared memory.
__device__ void set(u32* word, u32 bit) { atomicOr(word, bit); }
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

// Set in Dictionary::code_dtype if expand_runs has written the codes: CODE_DTYPE_BITS have their type, and the bits above the flag that of
// the run ends.
#define OF_RUNS 32
#define CODE_DTYPE_BITS 31
#define RUN_ENDS_SHIFT 8

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
    // With OF_RUNS, the address of the run ends; with PADDED, the first bytes of the padding value. Those of a complex number that follow
    // are zero.
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
