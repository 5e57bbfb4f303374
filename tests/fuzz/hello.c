/* hello.c -- any bytes from whoever calls, or is called: nobody is met who does not
 * know the job's key, and no byte is read that was not sent.
 *
 * Book: chapter 20.  Checked by: make fuzz.  Next: comm/handshake.c.
 *
 * Bytes: do we call or answer, is there a key, how the rest is cut. Where the network
 * is trusted a hello that is well made is met; with a key none is, for the fuzzer has
 * not got it.
 */
#include "comm/handshake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MUST(condition)                                                               \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "fuzz_hello: %s, line %d\n", #condition, __LINE__);       \
            abort();                                                                  \
        }                                                                             \
    } while (0)

enum { R = 4, ME = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    struct job_key key = { .source = KEY_NONE };
    struct identity me = { &key, 0x0706050403020100, R, ME };
    struct half_open h;
    if (size < 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
    const int calls = data[0] & 1, has_key = data[1] & 1;
    const size_t piece = 1 + data[2];
    if (has_key) {
        key.source = KEY_SECRET;
        key.n = KEY_BYTES;
        memset(key.bytes, 0x5a, KEY_BYTES);
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    handshake_begin(&h, pair[0], calls, calls ? 0 : -1, 1e18);
    for (size_t at = 3; at < size && h.stage < MET; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        MUST(send(pair[1], data + at, n, MSG_NOSIGNAL) == (ssize_t)n);
        handshake_step(&h, &me);
        MUST(h.stage <= REFUSED && h.done <= sizeof h.hello);
        MUST(!has_key || h.stage != MET);
        MUST(h.stage != MET || (h.rank >= 0 && h.rank < R && h.rank != ME));
    }
    close(pair[1]);
    if (h.stage < MET) handshake_step(&h, &me);
    MUST(!has_key || h.stage != MET);
    close(pair[0]);
    return 0;
}
