// The elements of a column as the output has them: codes looked up, nulls filled, values cast. Up to LANES of them a thread.

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

// The values of Found::place for an element without a value: its code is out of range, its value is null, or it is padding.
#define OUTSIDE (~(u64)0)
#define AT_NULL (~(u64)1)
#define PADDING (~(u64)2)
// The code that expand_runs writes for row n where run n ends no later than the one before.
#define NOT_INCREASING (~(u64)0)

// Returns the code of a row.
__device__ __noinline__ u64 code_of(u64 codes, u32 dtype, u64 row) {
    u32 bytes = stored_bytes(dtype);
    u64 code = load_integer(codes + bytes * row, bytes);
    // Sign extension makes a negative code larger than any count.
    u32 unused = 64 - 8 * bytes;
    return dtype < UINT8 ? (u64)((i64)(code << unused) >> unused) : code;
}

// Where `look_up` found an element: `place` elements after the address `values`, which is that of the codes if CODES is set.
struct Found {
    u64 values;
    u64 place;
};

__device__ __noinline__ Found look_up(u64 address, u32 flags, u64 row) {
    // Members are loaded one by one when needed: a copy of the struct would take registers of every caller.
    const Dictionary* dictionary = (const Dictionary*)address;
    u64 code = code_of(load(&dictionary->codes), load(&dictionary->code_dtype) & CODE_DTYPE_BITS, row);
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
#pragma unroll 1
    for (u32 lane = 0; live >> lane != 0; lane++) {
        // Arrow leaves the codes under nulls undefined.
        if (!(valid >> lane & 1)) {
            slot(lane) = load(column->fill);
            continue;
        }
        Found found = look_up(load(&column->values), load(&column->dtype), row + lane * apart);
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
