/* ladder.c -- prints counts for the kernels of chapter 17, and their measured times.
 *
 * Book: chapter 17.  Checked by: itself, because each count is computed in two ways.
 * Next: book/precision.c.
 * Measured numbers come from the newest table in bench/results/ with stage 17. */
#include "answers.h"
#include "ref/17_warp.h"

#include <glob.h>
#include <string.h>

enum { K = 128, V = 128, C = 64, CHUNKS = 128, HEADS = 96, MOST = 64 };

/* Copies the field of `line` in column `name`; `head` is the line of column names. */
static void field(const char *head, const char *line, const char *name, char out[64])
{
    const size_t n = strlen(name);
    out[0] = 0;
    while (head && line) {
        if (!strncmp(head, name, n) && strchr("\t\n", head[n]))
            snprintf(out, 64, "%.*s", (int)strcspn(line, "\t\n"), line);
        head = strchr(head, '\t');
        line = strchr(line, '\t');
        if (head) head++;
        if (line) line++;
    }
}

/* Returns a number of the newest record, from the row with this kind, rung (kernel
 * version) and number of heads. Exits with status 1 if there is no such row. */
static double recorded(const char *kind, const char *rung, const char *heads,
                       const char *column)
{
    static char head[4096], line[4096];
    const char *const equal[4][2] = { { "stage", "17_ladder" }, { "kind", kind },
                                      { "variant", rung }, { "H", heads } };
    char text[64];
    double x = NAN;
    glob_t files;
    if (glob("bench/results/[0-9]*-1gpu.tsv", 0, NULL, &files)) files.gl_pathc = 0;
    for (size_t i = 0; i < files.gl_pathc; i++) {
        FILE *f = fopen(files.gl_pathv[i], "r");
        if (!f || !fgets(head, sizeof head, f)) head[0] = 0;
        while (f && fgets(line, sizeof line, f)) {
            int n = 0;
            for (int k = 0; k < 4; k++) {
                field(head, line, equal[k][0], text);
                n += !strcmp(text, equal[k][1]);
            }
            field(head, line, column, text);
            if (n == 4 && text[0]) x = atof(text);
        }
        if (f) fclose(f);
    }
    if (isnan(x)) {
        fprintf(stderr, "ladder: no record has %s of %s\n", column, rung);
        exit(1);
    }
    return x;
}

static double counted(const char *rung, const char *column)
{
    return recorded("counter", rung, "96", column);
}

static double timed(const char *heads, const char *column)
{
    return recorded("time", "v1_thread", heads, column);
}

static void counter(const char *where, const char *format, double x)
{
    printf("@ladder/%s ", where);
    printf(format, x);
    printf("\n");
}

/* Returns how many reads of shared memory one load of a warp takes. Lane l loads 4
 * bytes at byte[l]; lanes that load the same word share a read. */
static int reads(const int *byte)
{
    int most = 1;
    for (int bank = 0; bank < 32; bank++) {
        int words = 0;
        for (int l = 0; l < 32; l++) {
            int known = byte[l] / 4 % 32 != bank;
            for (int m = 0; m < l; m++) known |= byte[m] / 4 == byte[l] / 4;
            words += !known;
        }
        if (words > most) most = words;
    }
    return most;
}

/* Counts bank conflicts per chunk in the third kernel: rows of 256 bytes, eight warps.
 * A lane reads two neighbouring keys of a row of w, and one number of kg. */
static void by_hand(void)
{
    int w[32], kg[32];
    for (int l = 0; l < 32; l++) {
        w[l] = 256 * (l / 4) + 4 * (l % 4);
        kg[l] = 256 * (l % 4 * 2) + 2 * (l / 4);
    }
    const double of_w = 8.0 * (K / 16) * (C / 8) * 2,
                 of_kg = 8.0 * (C / 16) * (K / 8) * 4;
    say("17.w", "%.0f", reads(w), 8);
    say("17.kg", "%.0f", reads(kg), 4);
    say("17.conflicts3", "%.0f", of_w * (reads(w) - 1) + of_kg * (reads(kg) - 1),
        1024 * 7 + 2048 * 3);
}

/* Counts bank conflicts in the fourth kernel; its ldmatrix loads rows of 256 bytes. */
static void by_ldmatrix(void)
{
    static double tile[64 * 128], r[LANES][8];
    int byte[LANES];
    for (int l = 0; l < LANES; l++)
        byte[l] = 256 * (l % 8 + l / 16 * 8) + l / 8 % 2 * 16;
    const int times = warp_ldmatrix(r, tile, byte, 0);
    const double blocks = 8 * (2.0 * (K / 16) * (C / 16) + C / 16);
    say("17.conflicts4", "%.0f", blocks * (times - 4), 8 * 68 * 28);
    say("17.reads6", "%.0f", blocks * 4 + 3 * C * 256 / 128, 2176 + 384);
}

static void per_chunk(const char *where, const char *rung, const char *column)
{
    counter(where, "%.0f", counted(rung, column) / CHUNKS / HEADS);
}

/* Prints numbers of cycles per chunk: of the kernel, with the block on its SM, and with
 * busy tensor cores. The profiler counts "issue" and "tensor" as percents of the cycles
 * in which an SM has a block. Each of the four schedulers issues in "issue" percent of
 * these cycles. */
static void clocks(const char *name, const char *rung)
{
    char where[40];
    const double active = counted(rung, "instructions") / CHUNKS / HEADS / 4
                          / (counted(rung, "issue") / 100);
    snprintf(where, sizeof where, "%s.clocks", name);
    counter(where, "%.0f", counted(rung, "cycles") / CHUNKS);
    snprintf(where, sizeof where, "%s.active", name);
    counter(where, "%.0f", active);
    snprintf(where, sizeof where, "%s.tensor", name);
    counter(where, "%.0f", counted(rung, "tensor") / 100 * active);
}

int main(void)
{
    const double flops = 4.0 * C * K * V, bytes = 2.0 * C * (2 * K + 2 * V) + 4 * K;
    counter("flops", "%.1f", flops / 1e6);
    counter("bytes", "%.1f", bytes / 1024);
    counter("intensity", "%.0f", flops / bytes);
    say("17.fma", "%.0f", flops / 2 / 128, 16384);
    say("17.tensor", "%.0f", flops / 4096, 1024);
    by_hand();
    by_ldmatrix();
    per_chunk("v3.conflicts", "v3_mma", "conflicts");
    per_chunk("v4.conflicts", "v4_ldmatrix", "conflicts");
    per_chunk("v6.wavefronts", "v6_swizzle", "wavefronts");
    per_chunk("v2.wavefronts", "v2_shared", "wavefronts");
    per_chunk("v5.wavefronts", "v5_async", "wavefronts");
    clocks("v2", "v2_shared");
    clocks("v3", "v3_mma");
    clocks("v4", "v4_ldmatrix");
    clocks("v5", "v5_async");
    clocks("v6", "v6_swizzle");
    clocks("v7", "v7_wgmma_sm90");
    counter("v1.ms", "%.0f", timed("96", "us") / 1000);
    counter("copy", "%.1f", timed("96", "copy") / 1e12);
    counter("product", "%.0f", timed("96", "product") / 1e12);
    counter("balance", "%.0f", timed("96", "product") / timed("96", "copy"));
    counter("floor96", "%.0f", 1e6 * timed("96", "bytes") / timed("96", "copy"));
    counter("floor32", "%.0f", 1e6 * timed("32", "bytes") / timed("32", "copy"));
    counter("v1.local", "%.0f", counted("v1_thread", "local_sectors") * 32 / 1e9);
    say("17.local", "%.0f", 4.0 * 2 * C * K * 128 * CHUNKS * HEADS / 1e9,
        4 * 16384 * 128.0 * 12288 / 1e9);
    say("17.announced", "%.0f", 3 * 64 * 128 * 2 + 4 * K, 49664);
    say("17.stages", "%.0f", floor(227 * 1024 / 49664.0), 4);
    /* Prints the descriptor of keys 96 .. 111 of w, which are step 2 of tile 1. */
    say("17.descriptor", "%.0f", 8192 / 16 + 2 * 32 / 16, 516);
    /* Prints how many KiB per SM must be in flight if memory's latency is 0.7 us. */
    const double copy = timed("96", "copy");
    say("02.little", "%.0f", copy * 0.7e-6 / 132 / 1024, copy / 1e6 * 0.7 / 135168);
    say("17.little", "%.0f", copy * 0.7e-6 / HEADS / 1024, copy / 1e6 * 0.7 / 98304);
    return 0;
}
