// The kernels that copy strided tensors.

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
