// The yardsticks, timed without an interpreter around them: each function returns the seconds that `times` runs took.
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#ifdef __AVX2__
#include <immintrin.h>
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Without it the compiler may join runs that write the same bytes.
static void written(void *memory) { __asm__ volatile("" : : "r"(memory) : "memory"); }

double copy(void *to, const void *from, size_t bytes, long times) {
  double start = now();
  for (long i = 0; i < times; i++) {
    memcpy(to, from, bytes);
    written(to);
  }
  return now() - start;
}

double fill(void *to, int byte, size_t bytes, long times) {
  double start = now();
  for (long i = 0; i < times; i++) {
    memset(to, byte, bytes);
    written(to);
  }
  return now() - start;
}

// A copy that does not read what it overwrites. Needs `to` aligned to 16 bytes; `bytes` is rounded down to 64.
double copy_past_cache(void *to, const void *from, size_t bytes, long times) {
#ifdef __SSE2__
  double start = now();
  for (long i = 0; i < times; i++) {
    const __m128i *source = from;
    __m128i *target = to;
    for (size_t n = bytes / 64; n > 0; n--, source += 4, target += 4) {
      __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
    written(to);
  }
  return now() - start;
#else
  return copy(to, from, bytes, times);
#endif
}

// Columns of float32 to a row-major matrix as one writes it down: blocks of rows, nothing else.
double pack(const float *const *columns, size_t width, size_t rows, float *to, size_t block, long times) {
  double start = now();
  for (long i = 0; i < times; i++) {
    for (size_t first = 0; first < rows; first += block) {
      size_t end = first + block < rows ? first + block : rows;
      for (size_t j = 0; j < width; j++)
        for (size_t row = first; row < end; row++) to[row * width + j] = columns[j][row];
    }
    written(to);
  }
  return now() - start;
}

#ifdef __AVX2__
enum { TILE = 16 };

#ifdef __AVX512F__
// Which elements of two rows each of them has once the blocks of `step` elements off the diagonal are swapped.
#define FIRST(k, step) ((k) & (step) ? TILE + ((k) ^ (step)) : (k))
#define SECOND(k, step) ((k) & (step) ? TILE + (k) : (k) ^ (step))
#define ALL(of, step)                                                                                                          \
  _mm512_setr_epi32(of(0, step), of(1, step), of(2, step), of(3, step), of(4, step), of(5, step), of(6, step), of(7, step),    \
                    of(8, step), of(9, step), of(10, step), of(11, step), of(12, step), of(13, step), of(14, step), of(15, step))

static inline __attribute__((always_inline)) void swap(__m512 tile[TILE], int step, __m512i first, __m512i second) {
#pragma GCC unroll 16
  for (int row = 0; row < TILE; row++) {
    if (row & step) continue;
    __m512 a = tile[row], b = tile[row | step];
    tile[row] = _mm512_permutex2var_ps(a, first, b);
    tile[row | step] = _mm512_permutex2var_ps(a, second, b);
  }
}

// 16 rows of 16 columns, whole lines of a row each.
static inline __attribute__((always_inline)) void pack_tile(const float *const *columns, size_t row, float *to, size_t width) {
  __m512 tile[TILE];
#pragma GCC unroll 16
  for (int k = 0; k < TILE; k++) tile[k] = _mm512_loadu_ps(columns[k] + row);
  // Rows are columns after four steps.
  swap(tile, 1, ALL(FIRST, 1), ALL(SECOND, 1));
  swap(tile, 2, ALL(FIRST, 2), ALL(SECOND, 2));
  swap(tile, 4, ALL(FIRST, 4), ALL(SECOND, 4));
  swap(tile, 8, ALL(FIRST, 8), ALL(SECOND, 8));
#pragma GCC unroll 16
  for (int k = 0; k < TILE; k++) _mm512_stream_ps(to + k * width, tile[k]);
}
#else
enum { HALF = TILE / 2 };

// 8 rows of 8 columns.
static inline __attribute__((always_inline)) void half_tile(const float *const *columns, size_t row, __m256 half[HALF]) {
  __m256 pairs[HALF], quads[HALF];
#pragma GCC unroll 4
  for (int k = 0; k < HALF; k += 2) {
    __m256 a = _mm256_loadu_ps(columns[k] + row), b = _mm256_loadu_ps(columns[k + 1] + row);
    pairs[k] = _mm256_unpacklo_ps(a, b);
    pairs[k + 1] = _mm256_unpackhi_ps(a, b);
  }
#pragma GCC unroll 2
  for (int k = 0; k < HALF; k += 4)
#pragma GCC unroll 2
    for (int high = 0; high < 2; high++) {
      quads[k + 2 * high] = _mm256_shuffle_ps(pairs[k + high], pairs[k + 2 + high], 0x44);
      quads[k + 2 * high + 1] = _mm256_shuffle_ps(pairs[k + high], pairs[k + 2 + high], 0xee);
    }
#pragma GCC unroll 4
  for (int k = 0; k < HALF / 2; k++) {
    half[k] = _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x20);
    half[k + 4] = _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x31);
  }
}

// 16 rows of 16 columns, whole lines of a row each: the halves of a line are written one after the other.
static inline __attribute__((always_inline)) void pack_tile(const float *const *columns, size_t row, float *to, size_t width) {
  for (int first = 0; first < TILE; first += HALF) {
    __m256 left[HALF], right[HALF];
    half_tile(columns, row + first, left);
    half_tile(columns + HALF, row + first, right);
#pragma GCC unroll 8
    for (int k = 0; k < HALF; k++) {
      _mm256_stream_ps(to + (first + k) * width, left[k]);
      _mm256_stream_ps(to + (first + k) * width + HALF, right[k]);
    }
  }
}
#endif

// The same by tiles of 16 x 16 that are transposed in registers and written past the cache. Needs a width that is a multiple of
// 16, and `to` aligned to 64 bytes; rows are rounded down to a multiple of 16.
double pack_tiles(const float *const *columns, size_t width, size_t rows, float *to, size_t block, long times) {
  double start = now();
  for (long i = 0; i < times; i++) {
    for (size_t first = 0; first < rows; first += block) {
      size_t end = first + block < rows ? first + block : rows;
      for (size_t j = 0; j + TILE <= width; j += TILE)
        for (size_t row = first; row + TILE <= end; row += TILE)
          pack_tile(columns + j, row, to + row * width + j, width);
    }
    _mm_sfence();
    written(to);
  }
  return now() - start;
}
#endif
