// Checked casts of single values, a part of kernels.cu: those of src/convert/cast/values.rs, step by step, NaNs included.

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

// A value as it is written, and whether it is the same number.
template <class Word> struct Converted {
    Word word;
    bool fits;
};

// An element in another type. Four kinds of numbers in between: a case for every pair would be ten times the code.
template <class D, class Word> __device__ Converted<Word> cast(u32 from, u64 at, u64 index) {
    D value;
    i64 integer = 0;
    float single = 0;
    bool fits;
    switch (from) {
        case BITS: integer = bit(at, index); break;
        case BOOL: integer = load((const u8*)at + index) != 0; break;
        case INT8: integer = load((const i8*)at + index); break;
        case INT16: integer = load_any<i16>(at + 2 * index); break;
        case INT32: integer = load_any<i32>(at + 4 * index); break;
        case INT64: integer = load_any<i64>(at + 8 * index); break;
        case UINT8: integer = load((const u8*)at + index); break;
        case UINT16: integer = load_any<u16>(at + 2 * index); break;
        case UINT32: integer = load_any<u32>(at + 4 * index); break;
        case FLOAT16: single = widen(Half{load_any<u16>(at + 2 * index)}); break;
        case BFLOAT16: single = widen(Brain{load_any<u16>(at + 2 * index)}); break;
        case FLOAT32: single = load_any<float>(at + 4 * index); break;
    }
    if (from == UINT64) fits = convert_integer(load_any<u64>(at + 8 * index), &value);
    else if (from == FLOAT64) fits = convert_float(load_any<double>(at + 8 * index), &value);
    else if (from < FLOAT16) fits = convert_integer(integer, &value);
    else fits = convert_float(single, &value);
    return {same_bits<Word>(value), fits};
}

// Not inlined: they are large, and are called where values are cast, at several places of several kernels.
template <class Word> __device__ Converted<Word> cast_to(u32 from, u32 to, u64 at, u64 index);

template <> __device__ __noinline__ Converted<u8> cast_to<u8>(u32 from, u32 to, u64 at, u64 index) {
    switch (to) {
        case BOOL: return cast<Bool, u8>(from, at, index);
        case INT8: return cast<i8, u8>(from, at, index);
        default: return cast<u8, u8>(from, at, index);
    }
}

template <> __device__ __noinline__ Converted<u16> cast_to<u16>(u32 from, u32 to, u64 at, u64 index) {
    switch (to) {
        case INT16: return cast<i16, u16>(from, at, index);
        case UINT16: return cast<u16, u16>(from, at, index);
        case FLOAT16: return cast<Half, u16>(from, at, index);
        default: return cast<Brain, u16>(from, at, index);
    }
}

template <> __device__ __noinline__ Converted<u32> cast_to<u32>(u32 from, u32 to, u64 at, u64 index) {
    switch (to) {
        case INT32: return cast<i32, u32>(from, at, index);
        case UINT32: return cast<u32, u32>(from, at, index);
        default: return cast<float, u32>(from, at, index);
    }
}

template <> __device__ __noinline__ Converted<u64> cast_to<u64>(u32 from, u32 to, u64 at, u64 index) {
    switch (to) {
        case INT64: return cast<i64, u64>(from, at, index);
        case UINT64: return cast<u64, u64>(from, at, index);
        default: return cast<double, u64>(from, at, index);
    }
}
