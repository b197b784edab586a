/* Fails a large allocation of one library when it is told to: preloaded, these stand before the functions of glibc. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *start, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Where the library's code is. */
static uintptr_t code_start, code_end;
/* The least bytes of an allocation that counts, how many succeed before one fails, and whether those after it fail too. */
static atomic_size_t least = SIZE_MAX, left = SIZE_MAX, count;
static atomic_int for_good;

void failing_library(uintptr_t start, uintptr_t end) {
    code_start = start;
    code_end = end;
}

void failing_start(size_t bytes, size_t succeed, int others) {
    left = succeed;
    for_good = others;
    count = 0;
    least = bytes;
}

/* Returns how many allocations were asked for since the start. */
size_t failing_stop(void) {
    least = SIZE_MAX;
    return count;
}

static int fails(const void *caller, size_t size) {
    uintptr_t at = (uintptr_t)caller;
    if (size < least || at < code_start || at >= code_end) return 0;
    size_t number = count++;
    return number == left || (number > left && for_good);
}

#define REFUSE_IF_FAILING(size, answer)                       \
    if (fails(__builtin_return_address(0), size)) {           \
        errno = ENOMEM;                                       \
        return answer;                                        \
    }

void *malloc(size_t size) {
    REFUSE_IF_FAILING(size, NULL)
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    REFUSE_IF_FAILING(number * size, NULL)
    return __libc_calloc(number, size);
}

void *realloc(void *start, size_t size) {
    REFUSE_IF_FAILING(size, NULL)
    return __libc_realloc(start, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    REFUSE_IF_FAILING(size, NULL)
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (fails(__builtin_return_address(0), size)) return ENOMEM;
    void *start = __libc_memalign(alignment, size);
    if (start == NULL) return ENOMEM;
    *out = start;
    return 0;
}

void *mmap(void *start, size_t size, int access, int kind, int file, off_t from) {
    REFUSE_IF_FAILING(size, MAP_FAILED)
    return (void *)syscall(SYS_mmap, start, size, access, kind, file, from);
}

void *mremap(void *start, size_t old, size_t size, int flags, ...) {
    REFUSE_IF_FAILING(size, MAP_FAILED)
    va_list rest;
    va_start(rest, flags);
    void *place = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    return (void *)syscall(SYS_mremap, start, old, size, flags, place);
}
