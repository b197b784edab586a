// The kernel of runs: for each row the run that has it, as a code for the kernels that gather values.

// The rows that a block expands at once. A bit for each tells whether a run begins there.
#define RUN_ROWS (LANES * THREADS)

// Writes for each row the number of its run as a signed code, of 64 bits if the run ends have as many, else of 32: the number of runs where
// none has the row. Together the rows compare as many ends: the code of row n is NOT_INCREASING where run n ends no later than the one
// before. `first` is the logical offset of the first row.
KERNEL expand_runs(u64 ends, u32 dtype, u64 count, u64 first, u64 rows, u64 out) {
    __shared__ u32 begins[RUN_ROWS / 32], before[RUN_ROWS / 32];
    // As ends increase, no later run has one of the rows. Without an offset each end that is looked at is compared, too.
    u64 limit = count < first + rows ? count : first + rows;
    for (u64 tile = blockIdx.x * (u64)RUN_ROWS; tile < rows; tile += gridDim.x * (u64)RUN_ROWS) {
        u64 from = first + tile, low = 0, high = limit;
        // The first run that ends after the tile's first row: each thread looks at one end, and all of them at ends that are equally far
        // apart. Any ends make the range smaller.
#pragma unroll 1
        while (low < high) {
            u64 step = (high - low + THREADS - 1) / THREADS, place = low + threadIdx.x * step;
            u32 ended = __syncthreads_count(place < high && code_of(ends, dtype, place) <= from);
            if (low + ended * step < high) high = low + ended * step;
            if (ended > 0) low += (ended - 1) * step + 1;
        }
        if (threadIdx.x < RUN_ROWS / 32) begins[threadIdx.x] = 0;
        __syncthreads();
        // A tile has no more runs than rows: only ends that do not increase go on.
#pragma unroll 1
        for (u32 round = 0; round < LANES; round++) {
            u64 run = low + round * THREADS + threadIdx.x;
            u64 end = run < limit ? code_of(ends, dtype, run) - from : RUN_ROWS;
            bool is_inside = end < RUN_ROWS;
            if (is_inside) set(begins + end / 32, 1u << end % 32);
            if (__syncthreads_count(is_inside) < THREADS) break;
        }
        if (threadIdx.x < RUN_ROWS / 32) {
            u32 sum = 0;
#pragma unroll 1
            for (u32 word = 0; word < threadIdx.x; word++) sum += __popc(begins[word]);
            before[threadIdx.x] = sum;
        }
        __syncthreads();
#pragma unroll 1
        for (u32 lane = 0; lane < LANES; lane++) {
            u32 place = lane * THREADS + threadIdx.x;
            u64 row = tile + place, code = low + before[place / 32] + __popc(begins[place / 32] & ~0u >> (31 - place % 32));
            if (row >= rows) break;
            if (row < count && (i64)code_of(ends, dtype, row) <= (row == 0 ? 0 : (i64)code_of(ends, dtype, row - 1))) code = NOT_INCREASING;
            if (dtype == INT64) store((u64*)out + row, code);
            else store((u32*)out + row, (u32)code);
        }
        // The next tile's bits are set only when nobody reads these.
        __syncthreads();
    }
}
