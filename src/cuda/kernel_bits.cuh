// The kernels of bitmaps and of bools: bits to bytes and back, counts of nulls.

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
