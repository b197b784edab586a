// Checked casts of single values: those of src/convert/cast/values.rs, step by step, NaNs included.

struct Bool { u8 byte; };
struct Half { u16 bits; };
struct Brain { u16 bits; };

__device__ bool is_finite(Half value) { return (value.bits & 0x7c00) != 0x7c00; }
__device__ bool is_finite(Brain value) { return (value.bits & 0x7f80) != 0x7f80; }
__device__ bool is_finite(float value) { return (same_bits<u32>(value) & 0x7f800000u) != 0x7f800000u; }
__device__ bool is_finite(double value) { return (same_bits<u64>(value) >> 52 & 0x7ff) != 0x7ff; }

__device__ float widen(Half half) {
    u32 sign = (half.bits & 0x8000u) << 16, exponent = half.bits >> 10 & 31, mantissa = half.bits & 0x3ff;
    if (exponent == 31) return same_bits<float>(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent == 0) return same_bits<float>(sign | same_bits<u32>(mantissa * 5.9604644775390625e-8f));
    return same_bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

__device__ float widen(Brain brain) {
    u32 quiet = (brain.bits & 0x7fff) > 0x7f80 ? 0x40 : 0;
    return same_bits<float>((brain.bits | quiet) << 16);
}

__device__ double widen(float single) {
    u32 word = same_bits<u32>(single);
    if ((word & 0x7fffffffu) <= 0x7f800000u) return single;
    return same_bits<double>((u64)(word & 0x80000000u) << 32 | 0x7ff8000000000000ull | (u64)(word & 0x7fffffu) << 29);
}

// The nearest, ties to even.
__device__ void narrow(float single, Half* out) {
    u32 word = same_bits<u32>(single), sign = word >> 16 & 0x8000, rest = word & 0x7fffffffu, half;
    if (rest > 0x7f800000u) half = 0x7e00 | (rest >> 13 & 0x3ff);
    else if (rest >= 0x477ff000u) half = 0x7c00;
    else if (rest >= 0x38800000u) half = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000u) >> 13;
    // The sum has an ulp of the smallest half.
    else half = same_bits<u32>(same_bits<float>(rest) + 0.5f) - 0x3f000000u;
    out->bits = sign | half;
}

__device__ void narrow(float single, Brain* out) {
    u32 word = same_bits<u32>(single);
    bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    out->bits = is_nan ? (word >> 16 | 0x40) : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

__device__ float narrow_nan(u64 word) {
    return same_bits<float>((u32)(word >> 32 & 0x80000000u) | 0x7fc00000u | (u32)(word >> 29 & 0x3fffff));
}

__device__ float to_single(double value) { return value != value ? narrow_nan(same_bits<u64>(value)) : (float)value; }

// A single that rounds to 16 bits as the double would: where it is not exact it is cut off, and its last bit set.
__device__ float odd_single(double value) {
    float near = to_single(value);
    double back = near;
    if (back == value || value != value) return near;
    bool farther = (back < 0 ? -back : back) > (value < 0 ? -value : value);
    return same_bits<float>((same_bits<u32>(near) - farther) | 1);
}

__device__ float odd_single(float value) { return value; }

template <class T> struct Limits {
    static const bool IS_SIGNED = (T)-1 < (T)0;
    static const T MAX = (T)(~(u64)0 >> (64 - 8 * sizeof(T) + IS_SIGNED));
    static const T MIN = IS_SIGNED ? (T)(-(i64)MAX - 1) : (T)0;
};

template <class T> __device__ bool is_negative(T value) {
    if constexpr (Limits<T>::IS_SIGNED) return value < 0;
    return false;
}

// The nearest integer of the type on the way to 0; 0 for NaN.
template <class T, class F> __device__ T saturated(F value) {
    const F above = (F)(Limits<T>::MAX / 2 + 1) * 2, lowest = (F)Limits<T>::MIN;
    if (value >= above) return Limits<T>::MAX;
    if (!(value > lowest)) return value != value ? (T)0 : Limits<T>::MIN;
    return (T)value;
}

// A double that rounds to 16 bits as the integer would.
template <class S> __device__ double odd_double(S value) {
    double near = (double)value;
    S back = saturated<S>(near);
    bool farther = (near > 0) == (back > value);
    return back == value ? near : same_bits<double>((same_bits<u64>(near) - farther) | 1);
}

// `convert` gives the value in another type, and tells whether it is the same, up to rounding in a float.
template <class S, class D> __device__ bool convert_integer(S value, D* out) {
    *out = (D)value;
    // The same bits can be another number when exactly one of the types is signed.
    return (S)*out == value && is_negative(value) == is_negative(*out);
}
template <class S> __device__ bool convert_integer(S value, Bool* out) {
    out->byte = value != 0;
    return value == 0 || value == 1;
}
template <class S> __device__ bool convert_integer(S value, float* out) { return *out = (float)value, true; }
template <class S> __device__ bool convert_integer(S value, double* out) { return *out = (double)value, true; }
template <class S> __device__ bool convert_integer(S value, Half* out) {
    narrow(odd_single(odd_double(value)), out);
    return is_finite(*out);
}
template <class S> __device__ bool convert_integer(S value, Brain* out) {
    narrow(odd_single(odd_double(value)), out);
    return is_finite(*out);
}

template <class F, class D> __device__ bool convert_float(F value, D* out) {
    const F above = (F)(Limits<D>::MAX / 2 + 1) * 2, lowest = (F)Limits<D>::MIN;
    *out = saturated<D>(value);
    return value >= lowest && value < above && (F)*out == value;
}
template <class F> __device__ bool convert_float(F value, Bool* out) {
    out->byte = value != 0;
    return value == 0 || value == 1;
}
template <class F> __device__ bool convert_float(F value, Half* out) {
    narrow(odd_single(value), out);
    return is_finite(*out) || !is_finite(value);
}
template <class F> __device__ bool convert_float(F value, Brain* out) {
    narrow(odd_single(value), out);
    return is_finite(*out) || !is_finite(value);
}
__device__ bool convert_float(float value, float* out) { return *out = value, true; }
__device__ bool convert_float(float value, double* out) { return *out = widen(value), true; }
__device__ bool convert_float(double value, double* out) { return *out = value, true; }
__device__ bool convert_float(double value, float* out) {
    *out = to_single(value);
    return is_finite(*out) || !is_finite(value);
}

// ---- Decimals ----

// The limbs of the largest number below: 128 bits times or by ten to the power of 128, and 96 bits more.
#define LIMBS 24
#define BILLION 1000000000u

// Ten to the power of a number below 9.
__device__ u32 power_of_ten(u32 exponent) {
    u32 power = 1;
    for (; exponent > 0; exponent--) power *= 10;
    return power;
}

// A number of limbs of 32 bits, the lowest first, times a factor; `count` limbs have room for the product. Not inlined: the registers of
// decimals would be too many for the kernels around them.
__device__ __noinline__ void multiply(u32* limbs, u32 count, u32 factor) {
    u64 carry = 0;
#pragma unroll 1
    for (u32 place = 0; place < count; place++) {
        carry += (u64)limbs[place] * factor;
        limbs[place] = (u32)carry;
        carry >>= 32;
    }
}

// The same by a billion; returns whether there is a remainder.
__device__ bool divide(u32* limbs, u32 count) {
    u64 rest = 0;
#pragma unroll 1
    for (u32 place = count; place > 0; place--) {
        rest = rest << 32 | limbs[place - 1];
        limbs[place - 1] = (u32)(rest / BILLION);
        rest %= BILLION;
    }
    return rest != 0;
}

// Which of four types a number has on its way to another type.
enum Carrier { INTEGER, UNSIGNED, SINGLE, DOUBLE };

struct Number {
    u64 bits;
    Carrier carrier;
    // Whether it is the stored number, up to rounding in a float.
    bool fits;
};

// An integer of 128 bits times ten to the power of minus the scale. For a float the nearest double, or, for shorter ones, one that
// rounds to them as the number itself would: inexact ones are cut off, and their last bit is set.
__device__ Number decimal(u64 low, u64 high, i32 scale, u32 to) {
    bool is_float = to >= FLOAT16, is_inexact = false, is_below_0 = (i64)high < 0;
    if (is_below_0) {
        high = ~high + (low == 0);
        low = ~low + 1;
    }
    if ((low | high) == 0) return {0, INTEGER, true};
    u32 power = scale < 0 ? -scale : scale;
    if (high == 0 && low >> 53 == 0 && power <= 22) {
        // Both are doubles, so one operation gives the nearest double to the number, and another one what it rounded off.
        double whole = (double)low, tens = 1;
#pragma unroll 1
        for (u32 place = power; place > 0; place--) tens *= 10;
        double near = scale < 0 ? whole * tens : whole / tens;
        double rest = scale < 0 ? fused(whole, tens, -near) : fused(-near, tens, whole);
        u64 word = same_bits<u64>(near);
        // As below: inexact ones on the way to shorter floats are cut off, and their last bit is set.
        if (is_float && to != FLOAT64 && rest != 0) word = (word - (rest < 0)) | 1;
        if (is_float) return {(u64)is_below_0 << 63 | word, DOUBLE, true};
        // From 2^53 on a product that is rounded may be an integer that fits all the same.
        if (scale > 0 || near < 9007199254740992.0) {
            u64 integer = (u64)near;
            return {is_below_0 ? ~integer + 1 : integer, is_below_0 ? INTEGER : UNSIGNED, rest == 0 && (double)integer == near};
        }
    }
    u32 limbs[LIMBS];
    // Below a fraction's 64 bits: so many that its quotient has as many. A limb has 1024 / 107 digits.
    u32 shift = is_float && scale > 0 ? 3 + power * 107 / 1024 : 0;
    u32 count = shift + 5 + (scale < 0 ? power * 107 / 1024 + 1 : 0);
#pragma unroll 1
    for (u32 place = 0; place < count; place++) limbs[place] = 0;
    limbs[shift] = (u32)low;
    limbs[shift + 1] = (u32)(low >> 32);
    limbs[shift + 2] = (u32)high;
    limbs[shift + 3] = (u32)(high >> 32);
    if (scale < 0) {
        multiply(limbs, count, power_of_ten(power % 9));
        for (u32 round = power / 9; round > 0; round--) multiply(limbs, count, BILLION);
    } else if (scale > 0) {
        // A quotient of billions, which are constants: cheap to divide by.
        u32 rounds = (power + 8) / 9;
        multiply(limbs, count, power_of_ten(9 * rounds - power));
        for (; rounds > 0; rounds--) is_inexact |= divide(limbs, count);
    }
    u32 last = count;
    while (last > 0 && limbs[last - 1] == 0) last--;
    if (!is_float) {
        u64 whole = (u64)limbs[1] << 32 | limbs[0];
        bool fits = !is_inexact && last <= 2 && !(is_below_0 && whole > 1ull << 63);
        return {is_below_0 ? ~whole + 1 : whole, is_below_0 ? INTEGER : UNSIGNED, fits};
    }
    // The highest 64 bits, the first of which is set.
    u32 top = limbs[last - 1], zeros = __clz(top);
    u64 next = (u64)(last > 1 ? limbs[last - 2] : 0) << 32 | (last > 2 ? limbs[last - 3] : 0);
    u64 fraction = (u64)top << 32 | next >> 32;
    if (zeros > 0) fraction = fraction << zeros | (u32)next >> (32 - zeros);
    is_inexact |= (u32)next << zeros != 0;
    for (u32 place = 3; place < last; place++) is_inexact |= limbs[last - 1 - place] != 0;
    u64 word = fraction >> 11, rest = fraction & 0x7ff;
    i64 exponent = 32 * ((i64)last - shift) - 1 - zeros;
    if (to == FLOAT64) {
        word += rest > 0x400 || (rest == 0x400 && (is_inexact || (word & 1)));
    } else {
        word |= rest != 0 || is_inexact;
    }
    // Without its first bit; one that was carried beyond it is added to the exponent.
    return {(u64)is_below_0 << 63 | (((u64)(exponent + 1022) << 52) + word), DOUBLE, true};
}

// ---- Values of any type ----

#define LOG2(bits, dtype) ((u64)(bits) << 3 * (dtype))
static_assert(DECIMAL128 <= 20, "a word has three bits for each dtype");

// Bytes of a stored element of these that are cast: the power of two that three bits of a word tell for each dtype, because a table of
// the shifts is shorter than the branches of a switch.
__device__ u32 stored_bytes(u32 dtype) {
    const u64 two = LOG2(1, INT16) | LOG2(1, UINT16) | LOG2(1, FLOAT16) | LOG2(1, BFLOAT16);
    const u64 four = LOG2(2, INT32) | LOG2(2, UINT32) | LOG2(2, FLOAT32) | LOG2(2, DECIMAL32);
    const u64 eight = LOG2(3, INT64) | LOG2(3, UINT64) | LOG2(3, FLOAT64) | LOG2(3, DECIMAL64);
    return 1u << ((two | four | eight | LOG2(4, DECIMAL128)) >> 3 * dtype & 7);
}

// A stored decimal.
__device__ __noinline__ Number decimal_at(u32 from, i32 scale, u32 to, u64 at, u64 index) {
    u32 bytes = stored_bytes(from), unused = from == DECIMAL32 ? 32 : 0;
    u64 low = load_integer(at + bytes * index, bytes < 8 ? bytes : 8);
    low = (u64)((i64)(low << unused) >> unused);
    u64 high = from == DECIMAL128 ? load_integer(at + bytes * index + 8, 8) : (u64)((i64)low >> 63);
    return decimal(low, high, scale, to);
}

// Which type a number has on its way from what is stored, decimals excepted.
__device__ Carrier carrier_of(u32 from) {
    switch (from) {
        case UINT64: return UNSIGNED;
        case FLOAT16: case BFLOAT16: case FLOAT32: return SINGLE;
        case FLOAT64: return DOUBLE;
        default: return INTEGER;
    }
}

// Turns what is stored to numbers of its carrier: one case for all words.
template <u32 COUNT> __device__ void carry(u32 from, u64 (&words)[COUNT]) {
    u32 unused = 64 - 8 * stored_bytes(from);
#define CARRY(expression) \
    _Pragma("unroll") for (u32 place = 0; place < COUNT; place++) { \
        u64 word = words[place]; \
        words[place] = (expression); \
    }
    if (from == BOOL) CARRY(word != 0)
    else if (from < INT64) CARRY((u64)((i64)(word << unused) >> unused))
    else if (from == FLOAT16) CARRY(same_bits<u32>(widen(Half{(u16)word})))
    else if (from == BFLOAT16) CARRY(same_bits<u32>(widen(Brain{(u16)word})))
#undef CARRY
}

// A word in another type, and whether it is the same number, up to rounding in a float.
struct Cast {
    u64 word;
    bool fits;
};

template <class D, class S> __device__ Cast cast_value(S value) {
    D result;
    bool fits;
    if constexpr ((S)0.5 == (S)0) fits = convert_integer(value, &result);
    else fits = convert_float(value, &result);
    return {same_bits<typename Bytes<sizeof(D)>::Word>(result), fits};
}

template <class D> __device__ Cast cast_number(Carrier carrier, u64 bits) {
    switch (carrier) {
        case INTEGER: return cast_value<D>((i64)bits);
        case UNSIGNED: return cast_value<D>(bits);
        case SINGLE: return cast_value<D>(same_bits<float>((u32)bits));
        default: return cast_value<D>(same_bits<double>(bits));
    }
}

// Four carriers: a case for every pair of types would be ten times the code. Not inlined, as it is large.
__device__ __noinline__ Cast cast_word(u32 to, Carrier carrier, u64 bits) {
    switch (to) {
        case BOOL: return cast_number<Bool>(carrier, bits);
        case INT8: return cast_number<i8>(carrier, bits);
        case INT16: return cast_number<i16>(carrier, bits);
        case INT32: return cast_number<i32>(carrier, bits);
        case INT64: return cast_number<i64>(carrier, bits);
        case UINT8: return cast_number<u8>(carrier, bits);
        case UINT16: return cast_number<u16>(carrier, bits);
        case UINT32: return cast_number<u32>(carrier, bits);
        case UINT64: return cast_number<u64>(carrier, bits);
        case FLOAT16: return cast_number<Half>(carrier, bits);
        case BFLOAT16: return cast_number<Brain>(carrier, bits);
        case FLOAT32: return cast_number<float>(carrier, bits);
        default: return cast_number<double>(carrier, bits);
    }
}
