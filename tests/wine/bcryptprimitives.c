/* A library of Windows that Wine lacks before its version 9: Rust's standard library takes its random numbers from there.
 * https://learn.microsoft.com/en-us/windows/win32/seccng/processprng; RtlGenRandom, which Wine has, is exported as SystemFunction036. */
#include <stddef.h>

__declspec(dllimport) unsigned char __stdcall SystemFunction036(void *buffer, unsigned long length);

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *data, size_t length) {
    const size_t most = 1 << 20;
    while (length > 0) {
        size_t part = length < most ? length : most;
        if (!SystemFunction036(data, (unsigned long)part)) {
            return 0;
        }
        data += part;
        length -= part;
    }
    return 1;
}
