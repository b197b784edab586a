// Frequent casts: those that most data needs, in registers, and with all loads of values before the first cast, where cast_lanes takes words
// of shared memory for its many types. The host tells which they are: src/cuda/kernels/frequent.rs.

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
        u32 code_dtype = load(&dictionary->code_dtype) & CODE_DTYPE_BITS, bytes = stored_bytes(code_dtype);
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
