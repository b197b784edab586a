// How kernels read bits, values of any alignment, and words of 1, 2, 4 or 8 bytes.

// ---- Bits ----

__device__ bool bit(u64 bitmap, u64 index) { return (load((const u8*)bitmap + (index >> 3)) >> (index & 7)) & 1; }

// Returns `count` bits, at most 16, in the low bits of a word. Reads no byte without one of them.
__device__ u32 bits(u64 bitmap, u64 index, u32 count) {
    const u8* bytes = (const u8*)bitmap + (index >> 3);
    u32 first = index & 7, last = first + count;
    u32 word = load(bytes);
    if (last > 8) word |= (u32)load(bytes + 1) << 8;
    if (last > 16) word |= (u32)load(bytes + 2) << 16;
    return (word >> first) & ((1u << count) - 1);
}

// Spreads four bits to four bytes of 0 or 1.
__device__ u32 spread(u32 four) { return ((four & 15) * 0x00204081u) & 0x01010101u; }

// Returns 1 for each byte of the word that is not 0, in that byte.
__device__ u32 truths(u32 word) { return ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7; }

// Returns a bit for each byte of the word, set if the byte is not 0: the product gathers the lowest bits of the bytes in the top four.
__device__ u32 truth_bits(u32 word) { return (truths(word) * 0x10204080u) >> 28; }

// ---- Values of any alignment ----

template <class T, class U> __device__ T same_bits(U from) {
    static_assert(sizeof(T) == sizeof(U), "as many bytes");
    union { U from; T to; } both;
    both.from = from;
    return both.to;
}

template <u32 SIZE> struct Bytes;
template <> struct Bytes<1> { typedef u8 Word; };
template <> struct Bytes<2> { typedef u16 Word; };
template <> struct Bytes<4> { typedef u32 Word; };
template <> struct Bytes<8> { typedef u64 Word; };

template <class T> __device__ T load_any(u64 address) {
    if (address % sizeof(T) == 0) return load((const T*)address);
    typename Bytes<sizeof(T)>::Word word = 0;
#pragma unroll 1
    for (u32 byte = sizeof(T); byte > 0; byte--) word = word << 8 | load((const u8*)address + byte - 1);
    return same_bits<T>(word);
}

// Loads an integer of 1, 2, 4 or 8 bytes. Not inlined, which keeps the kernels small.
__device__ __noinline__ u64 load_integer(u64 from, u32 bytes) {
    if (bytes == 2 && from % 2 == 0) return load((const u16*)from);
    if (bytes == 4 && from % 4 == 0) return load((const u32*)from);
    if (bytes == 8 && from % 8 == 0) return load((const u64*)from);
    u64 word = 0;
#pragma unroll 1
    for (u32 byte = bytes; byte > 0; byte--) word = word << 8 | load((const u8*)from + byte - 1);
    return word;
}

template <> __device__ Sixteen load_any<Sixteen>(u64 address) {
    if (address % 16 == 0) return load((const Sixteen*)address);
    return Sixteen{{load_any<u64>(address), load_any<u64>(address + 8)}};
}

// Whether `load_wide` may read 16 bytes at `from`: the address is aligned, or both aligned vectors around it lie between `first` and
// `end`.
__device__ bool is_wide(u64 from, u64 first, u64 end) {
    u64 start = from - from % 16;
    return from == start || (start >= first && start + 32 <= end);
}

// Loads 16 bytes from an address for which `is_wide` is true.
__device__ Vector<u32> load_wide(u64 from) {
    u32 skipped = from % 16, shift = skipped % 4 * 8;
    const Vector<u32>* start = (const Vector<u32>*)(from - skipped);
    Vector<u32> low = load(start);
    if (skipped == 0) return low;
    Vector<u32> high = load(start + 1);
    u32 words[8];
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        words[lane] = low.lanes[lane];
        words[4 + lane] = high.lanes[lane];
    }
    // Constant indices keep the words in registers. Threads that read one run of bytes have the same `skipped`, and do not diverge.
    if (skipped & 8) {
#pragma unroll
        for (u32 lane = 0; lane < 6; lane++) words[lane] = words[lane + 2];
    }
    if (skipped & 4) {
#pragma unroll
        for (u32 lane = 0; lane < 5; lane++) words[lane] = words[lane + 1];
    }
    Vector<u32> vector;
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) {
        vector.lanes[lane] = (u32)(((u64)words[lane + 1] << 32 | words[lane]) >> shift);
    }
    return vector;
}

// ---- Words of 1, 2, 4 or 8 bytes ----

// A case for each size.
#define EACH_SIZE(size, use) \
    switch (size) { \
        case 1: use(u8) break; \
        case 2: use(u16) break; \
        case 4: use(u32) break; \
        default: use(u64) \
    }

__device__ void store_word(u64 to, u32 size, u64 word) {
    switch (size) {
        case 1: return store((u8*)to, (u8)word);
        case 2: return store((u16*)to, (u16)word);
        case 4: return store((u32*)to, (u32)word);
        default: return store((u64*)to, word);
    }
}
