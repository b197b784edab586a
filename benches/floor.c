// The yardsticks, timed without an interpreter around them: each function returns the seconds that `times` runs took.
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
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
