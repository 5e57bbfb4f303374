/* main.c -- drives a fuzz target without libFuzzer: replays files, then mutates them.
 *
 * Usage: replay SECONDS FILE...: runs every file, then mutations until the time is up.
 */
#include "base/random.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };
static uint64_t seed = 88172645463325252u;

static uint64_t next(void) { return random_bits(&seed); }

/* Sets, flips, increments, decrements or copies bytes, and may truncate the input. */
static size_t change(uint8_t *x, size_t n)
{
    for (uint64_t k = next() % 6 + 1; k && n; k--) {
        uint8_t *at = x + next() % n;
        switch (next() % 5) {
        case 0: *at = (uint8_t)next(); break;
        case 1: *at ^= (uint8_t)(1 << next() % 8); break;
        case 2: (*at)++; break;
        case 3: (*at)--; break;
        case 4: memmove(at, x + next() % n / 2, (size_t)(x + n - at) / 2); break;
        }
    }
    return next() % 8 ? n : next() % (n + 1);
}

static size_t read_file(const char *path, uint8_t *x)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "replay: %s: cannot read\n", path);
        exit(2);
    }
    const size_t n = fread(x, 1, MOST, f);
    fclose(f);
    return n;
}

int main(int argc, char **argv)
{
    uint8_t x[MOST];
    long runs = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: replay SECONDS FILE...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++, runs++)
        LLVMFuzzerTestOneInput(x, read_file(argv[i], x));
    const time_t end = time(NULL) + atoi(argv[1]);
    while (time(NULL) < end)
        for (int k = 0; k < 100; k++, runs++) {
            const size_t n = read_file(argv[2 + next() % (uint64_t)(argc - 2)], x);
            LLVMFuzzerTestOneInput(x, change(x, n));
        }
    printf("%ld inputs\n", runs);
    return 0;
}
