// How threads write a column-major matrix: vectors of one column each.

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
