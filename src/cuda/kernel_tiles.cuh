// How blocks write a matrix by tiles in shared memory: row-major ones, and any that a cast needs.

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
