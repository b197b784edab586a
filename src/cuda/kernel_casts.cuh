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

// A number of limbs of 32 bits, the lowest first, times a factor; `count` limbs have room for the product.
__device__ void multiply(u32* limbs, u32 count, u32 factor) {
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
__device__ __noinline__ Number decimal(u64 low, u64 high, i32 scale, u32 to) {
    bool is_float = to >= FLOAT16, is_inexact = false, is_below_0 = (i64)high < 0;
    if (is_below_0) {
        high = ~high + (low == 0);
        low = ~low + 1;
    }
    if ((low | high) == 0) return {0, INTEGER, true};
    u32 power = scale < 0 ? -scale : scale, limbs[LIMBS];
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

// Bytes of a stored element of these that are cast.
__device__ u32 stored_bytes(u32 dtype) {
    switch (dtype) {
        case INT16: case UINT16: case FLOAT16: case BFLOAT16: return 2;
        case INT32: case UINT32: case FLOAT32: case DECIMAL32: return 4;
        case INT64: case UINT64: case FLOAT64: case DECIMAL64: return 8;
        case DECIMAL128: return 16;
        default: return 1;
    }
}

// An element on its way to another type. Four kinds of numbers in between: a case for every pair would be ten times the code.
__device__ Number number_of(u32 from, i32 scale, u32 to, u64 at, u64 index) {
    u64 low, high = 0;
    switch (stored_bytes(from)) {
        case 1: low = from == BITS ? bit(at, index) : load((const u8*)at + index); break;
        case 2: low = load_any<u16>(at + 2 * index); break;
        case 4: low = load_any<u32>(at + 4 * index); break;
        case 8: low = load_any<u64>(at + 8 * index); break;
        default:
            low = load_any<u64>(at + 16 * index);
            high = load_any<u64>(at + 16 * index + 8);
    }
    switch (from) {
        case BOOL: low = low != 0; break;
        case INT8: low = (u64)(i64)(i8)low; break;
        case INT16: low = (u64)(i64)(i16)low; break;
        case INT32: case DECIMAL32: low = (u64)(i64)(i32)low; break;
        case UINT64: return {low, UNSIGNED, true};
        case FLOAT16: return {same_bits<u32>(widen(Half{(u16)low})), SINGLE, true};
        case BFLOAT16: return {same_bits<u32>(widen(Brain{(u16)low})), SINGLE, true};
        case FLOAT32: return {low, SINGLE, true};
        case FLOAT64: return {low, DOUBLE, true};
    }
    if (from < DECIMAL32) return {low, INTEGER, true};
    return decimal(low, from == DECIMAL128 ? high : (u64)((i64)low >> 63), scale, to);
}

// A value as it is written, and whether it is the same number.
template <class Word> struct Converted {
    Word word;
    bool fits;
};

template <class D, class Word> __device__ Converted<Word> cast(Number number) {
    D value;
    bool fits;
    switch (number.carrier) {
        case INTEGER: fits = convert_integer((i64)number.bits, &value); break;
        case UNSIGNED: fits = convert_integer(number.bits, &value); break;
        case SINGLE: fits = convert_float(same_bits<float>((u32)number.bits), &value); break;
        default: fits = convert_float(same_bits<double>(number.bits), &value);
    }
    return {same_bits<Word>(value), fits && number.fits};
}

// Not inlined: they are large.
template <class Word> __device__ Converted<Word> cast_to(u32 to, Number number);

template <> __device__ __noinline__ Converted<u8> cast_to<u8>(u32 to, Number number) {
    switch (to) {
        case BOOL: return cast<Bool, u8>(number);
        case INT8: return cast<i8, u8>(number);
        default: return cast<u8, u8>(number);
    }
}

template <> __device__ __noinline__ Converted<u16> cast_to<u16>(u32 to, Number number) {
    switch (to) {
        case INT16: return cast<i16, u16>(number);
        case UINT16: return cast<u16, u16>(number);
        case FLOAT16: return cast<Half, u16>(number);
        default: return cast<Brain, u16>(number);
    }
}

template <> __device__ __noinline__ Converted<u32> cast_to<u32>(u32 to, Number number) {
    switch (to) {
        case INT32: return cast<i32, u32>(number);
        case UINT32: return cast<u32, u32>(number);
        default: return cast<float, u32>(number);
    }
}

template <> __device__ __noinline__ Converted<u64> cast_to<u64>(u32 to, Number number) {
    switch (to) {
        case INT64: return cast<i64, u64>(number);
        case UINT64: return cast<u64, u64>(number);
        default: return cast<double, u64>(number);
    }
}
