// The kernels: Arrow's layouts to those of tensors and back, on the device.
//
// Here are those that write matrices of columns, and what goes with them; those of the last four headers stand alone.
//
// nvrtc compiles this file to kernels.ptx (`make ptx`). For the simulated driver a C++ compiler compiles it to host functions
// (tests/simulated-kernels), so kernels access global memory through `load`, `store`, `add`, `lower` and `prefetch` only.
//
// Every loop is a grid-stride loop over 64-bit indices: any grid gives the same result. Addresses of values may be misaligned,
// as Arrow only recommends alignment.

#include "kernel_types.cuh"
#include "kernel_words.cuh"
#include "kernel_elements.cuh"
#include "kernel_frequent_casts.cuh"
#include "kernel_columns.cuh"
#include "kernel_tiles.cuh"

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
            u64 codes = dictionary.codes, row = place;
            u32 code_dtype = dictionary.code_dtype & CODE_DTYPE_BITS;
            Found found = look_up(from, column.dtype, row);
            from = found.values;
            place = found.place;
            // Padding never misfits, so `misfits` has no row of it.
            if (place == AT_NULL || place == PADDING) kind = NULL_VALUE;
            if (place == OUTSIDE) kind = code_dtype < UINT8 ? CODE : UNSIGNED_CODE;
            if (place == OUTSIDE && dictionary.code_dtype & OF_RUNS) {
                kind = code_of(codes, code_dtype, row) == NOT_INCREASING ? RUN_END : NO_RUN;
                codes = dictionary.first;
                code_dtype = dictionary.code_dtype >> RUN_ENDS_SHIFT;
            }
            if (kind == CODE || kind == UNSIGNED_CODE || kind == RUN_END) {
                store((u64*)(values + 32 * number), code_of(codes, code_dtype, row));
            }
        }
#pragma unroll 1
        for (u32 byte = 0; kind == VALUE && byte < bytes; byte++) {
            store(values + 32 * number + byte, load((const u8*)from + place * bytes + byte));
        }
        store(values + 32 * number + 31, (u8)kind);
    }
}

#include "kernel_runs.cuh"
#include "kernel_ragged.cuh"
#include "kernel_strided.cuh"
#include "kernel_bits.cuh"
