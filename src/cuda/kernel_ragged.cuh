// The kernels of ragged rows: their lengths, where the items of padded rows are, and offsets that count from another item.

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

// Lowers the six numbers of `found` to what it finds in the rows: the complement of the largest length, the first row whose offsets are
// out of bounds of `items`, the first row with more items than `most`, the first null row, the complement of the largest end, and the first
// null row with items.
// Writes to `kept` how many items each row keeps: at most `most`, and none of a null row. Either address may be 0.
KERNEL measure_rows(const __grid_constant__ Rows rows, u64 count, u64 items, u64 most, u64* found, i64* kept) {
    u64 longest = 0, outside = ~(u64)0, longer = ~(u64)0, null = ~(u64)0, end = 0, filled = ~(u64)0;
    for (EACH(row, count)) {
        Row own = row_of(rows, row);
        // Negative numbers exceed `items`, as they are unsigned here. A thread visits its rows in ascending order.
        bool fits = own.start <= items && own.length <= items - own.start;
        if (fits && end < own.start + own.length) end = own.start + own.length;
        if (!fits && outside > row) outside = row;
        if (own.is_null) {
            if (null > row) null = row;
            if (own.length != 0 && filled > row) filled = row;
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
    if (filled != ~(u64)0) lower(found + 5, filled);
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

// Writes `count` aligned integers of 64 bits if `is_wide`, else of 32, with `shift` added to each, wrapping: offsets that count from another
// item.
KERNEL shift_offsets(u64 from, u64 count, u32 is_wide, u64 shift, u64 out) {
    for (EACH(index, count)) {
        if (is_wide) store((u64*)out + index, load((const u64*)from + index) + shift);
        else store((u32*)out + index, load((const u32*)from + index) + (u32)shift);
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
