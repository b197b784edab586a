// The yardsticks, timed without an interpreter around them: each function returns the seconds that `times` runs took.
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#ifdef __AVX512F__
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

#ifdef __AVX512F__
enum { TILE = 16 };

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

static void pack_block(const float *const *columns, size_t width, size_t first, size_t end, float *to) {
  for (size_t j = 0; j + TILE <= width; j += TILE)
    for (size_t row = first; row + TILE <= end; row += TILE) {
      __m512 tile[TILE];
#pragma GCC unroll 16
      for (int k = 0; k < TILE; k++) tile[k] = _mm512_loadu_ps(columns[j + k] + row);
      // Rows are columns after four steps.
      swap(tile, 1, ALL(FIRST, 1), ALL(SECOND, 1));
      swap(tile, 2, ALL(FIRST, 2), ALL(SECOND, 2));
      swap(tile, 4, ALL(FIRST, 4), ALL(SECOND, 4));
      swap(tile, 8, ALL(FIRST, 8), ALL(SECOND, 8));
#pragma GCC unroll 16
      for (int k = 0; k < TILE; k++) _mm512_stream_ps(to + (row + k) * width + j, tile[k]);
    }
}

// The same by tiles of 16 x 16 that are transposed in registers and written past the cache. Needs a width that is a multiple of
// 16, and `to` aligned to 64 bytes; rows are rounded down to a multiple of 16.
double pack_tiles(const float *const *columns, size_t width, size_t rows, float *to, size_t block, long times) {
  double start = now();
  for (long i = 0; i < times; i++) {
    for (size_t first = 0; first < rows; first += block)
      pack_block(columns, width, first, first + block < rows ? first + block : rows, to);
    _mm_sfence();
    written(to);
  }
  return now() - start;
}
#endif
