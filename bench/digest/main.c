/* main.c -- kcp-digest: what a variant runs on a GPU, as a number that a rename keeps.
 *
 * Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: object.c.
 * A digest is over the machine code of the GPU functions in the variant's object and in
 * the objects that its host code calls. Names, comments, lines and the order of
 * functions are not in it.
 */
#include "digest.h"
#include "ref/kcp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-digest [--arch 90] [--sets | --functions | --host] OBJECT...\n"
    "                  [--old OBJECT...]\n"
    "       kcp-digest --paths FILE\n"
    "Prints stage, variant, nvcc and digest of every variant that objects register;\n"
    "- for one that needs an object which is old, or not there.\n"
    "--host: one digest of the host code of all objects, as the row comm.\n"
    "--sets: behind it those of its functions; --functions: each of each object.\n"
    "--paths: name and digest of each row of a table of paths, preprocessed.\n";

/* Of FNV-1a, over any bytes. */
uint64_t digest_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The digest of a set: neither the order nor a second copy of a member counts. */
static uint64_t digest_set(uint64_t *x, size_t n)
{
    uint64_t h = DIGEST_SEED;
    qsort(x, n, sizeof *x, by_value);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || x[i] != x[i - 1]) h = digest_bytes(h, &x[i], sizeof x[i]);
    return h;
}

/* A function of ours on the host side of CUDA: the library's have other names. */
static int is_ours(const char *symbol)
{
    if (!strncmp(symbol, "cuda_", 5)) return 1;
    return !strncmp(symbol, "_Z", 2) && symbol[2] >= '1' && symbol[2] <= '9';
}

/* The objects that the host code of o reaches, o too: marks[i] is 1 for each. Counts
 * what is not to be had: functions in no object, objects older than their sources. */
static int reach(const struct object *o, int n, int from, char *marks)
{
    int missing = o[from].old;
    marks[from] = 1;
    for (int i = 0; i < o[from].wanted; i++) {
        int found = 0;
        for (int j = 0; j < n; j++) {
            if (!object_defines(&o[j], o[from].want[i])) continue;
            found = 1;
            if (!marks[j]) missing += reach(o, n, j, marks);
        }
        missing += !found && is_ours(o[from].want[i]);
    }
    return missing;
}

static int print_variant(const struct object *o, int n, int at,
                         const struct registered *v, int sets)
{
    size_t count = 0;
    int mixed = 0;
    char *marks = calloc((size_t)n, 1);
    if (!marks) return 1;
    const int missing = reach(o, n, at, marks);
    for (int j = 0; j < n; j++) count += marks[j] ? o[j].functions : 0;
    uint64_t *all = malloc((count + 1) * sizeof *all);
    if (!all) {
        free(marks);
        return 1;
    }
    count = 0;
    for (int j = 0; j < n; j++) {
        if (!marks[j]) continue;
        for (size_t i = 0; i < o[j].functions; i++)
            all[count++] = o[j].function[i].hash;
        mixed |= o[j].functions && strcmp(o[j].nvcc, o[at].nvcc);
    }
    const uint64_t h = digest_set(all, count);
    printf("%s\t%s\t%s\t", v->stage, v->variant, mixed ? "mixed" : o[at].nvcc);
    if (missing || o[at].nvcc[0] == '-') printf("-");      /* or of another chip */
    else printf("%016llx", (unsigned long long)h);
    for (size_t i = 0; i < count && sets; i++)
        printf("%c%016llx", i ? ' ' : '\t', (unsigned long long)all[i]);
    printf("\n");
    free(all);
    free(marks);
    return 0;
}

static void print_functions(const struct object *o)
{
    for (size_t i = 0; i < o->functions; i++)
        printf("%s\t%zu\t%016llx\n", o->path, o->function[i].bytes,
               (unsigned long long)o->function[i].hash);
}

/* One digest of the host code of all objects. */
static int print_host(const struct object *o, int n)
{
    size_t count = 0;
    int missing = n == 0;
    for (int i = 0; i < n; i++) {
        count += o[i].hosts;
        missing |= o[i].old || strcmp(o[i].compiler, o[0].compiler);
    }
    uint64_t *all = malloc((count + 1) * sizeof *all);
    if (!all) return 1;
    count = 0;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < o[i].hosts; k++) all[count++] = o[i].host[k];
    const uint64_t h = digest_set(all, count);
    if (missing) printf("comm\t-\t-\t-\n");
    else printf("comm\t-\t%s\t%016llx\n", o[0].compiler, (unsigned long long)h);
    free(all);
    return 0;
}

static int print_paths(const char *file)
{
    char *table = file_text(file, NULL);
    if (!table) return 2;
    const int bad = paths_print(table, stdout);
    free(table);
    if (bad) fprintf(stderr, "kcp-digest: %s: found a row without an end\n", file);
    return bad;
}

int main(int argc, char **argv)
{
    static struct object o[1024];
    int arch = 90, functions = 0, host = 0, sets = 0, first = 1;
    if (argc > 1 && !strcmp(argv[1], "--help")) return fputs(usage, stdout) < 0;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-digest %s\n", kcp_version());
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "--paths")) return print_paths(argv[2]);
    for (; first < argc && !strncmp(argv[first], "--", 2); first++) {
        if (!strcmp(argv[first], "--functions")) functions = 1;
        else if (!strcmp(argv[first], "--host")) host = 1;
        else if (!strcmp(argv[first], "--arch") && first + 1 < argc)
            arch = atoi(argv[++first]);
        else if (!strcmp(argv[first], "--sets")) sets = 1;
        else break;
    }
    const char *at = first < argc ? argv[first] : "no object";
    const int unknown = !strncmp(at, "--", 2) && strcmp(at, "--old");
    if (first >= argc || argc > 1024 || unknown) {
        fprintf(stderr, "kcp-digest: found %s, expected options and objects (--help)\n",
                at);
        return 2;
    }
    int n = 0;
    for (int i = first, old = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--old")) {
            old = 1;
            continue;
        }
        if (object_read(&o[n], argv[i], arch)) return 2;
        o[n++].old = old;
    }
    if (host) return print_host(o, n);
    if (functions) printf("object\tbytes\tdigest\n");
    else printf("stage\tvariant\tnvcc\tdigest%s\n", sets ? "\tfunctions" : "");
    for (int i = 0; i < n; i++) {
        if (functions) print_functions(&o[i]);
        for (int j = 0; j < o[i].variants && !functions; j++)
            if (print_variant(o, n, i, &o[i].variant[j], sets)) return 1;
    }
    return ferror(stdout) || fflush(stdout);
}
