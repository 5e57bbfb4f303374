/* main.c -- kcp-digest: what a variant runs on a GPU, as a number that a rename keeps.
 *
 * Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: object.c.
 * A digest is over the machine code of the GPU functions in the variant's object and in
 * the objects that its host code calls, and over the rows of the table of paths that
 * name it. Names, comments, lines and the order of functions are not in it.
 */
#include "digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-digest [--arch 90] [--paths FILE] [--functions] OBJECT...\n"
    "       kcp-digest --sources FILE...\n"
    "Prints stage, variant, nvcc and digest of every variant that the objects register;\n"
    "--functions: each GPU function of each object; --sources: one digest of C sources\n"
    "without comments, blanks and the files that they include.\n";

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

/* The objects that the host code of o reaches, o too: marks[i] is 1 for each. */
static void reach(const struct object *o, int n, int from, char *marks)
{
    marks[from] = 1;
    for (int i = 0; i < o[from].wanted; i++)
        for (int j = 0; j < n; j++)
            if (!marks[j] && object_defines(&o[j], o[from].want[i]))
                reach(o, n, j, marks);
}

static int print_variant(const struct object *o, int n, int at,
                         const struct registered *v, const char *paths)
{
    size_t count = 0;
    int mixed = 0;
    char *marks = calloc((size_t)n, 1);
    if (!marks) return 1;
    reach(o, n, at, marks);
    for (int j = 0; j < n; j++) count += marks[j] ? o[j].functions : 0;
    uint64_t *all = malloc((count + 1) * sizeof *all);
    if (!all) return free(marks), 1;
    count = 0;
    for (int j = 0; j < n; j++) {
        if (!marks[j]) continue;
        for (size_t i = 0; i < o[j].functions; i++) all[count++] = o[j].function[i].hash;
        mixed |= o[j].functions && strcmp(o[j].nvcc, o[at].nvcc);
    }
    uint64_t h = digest_set(all, count);
    if (paths) h = paths_digest(h, paths, v->stage, v->variant);
    printf("%s\t%s\t%s\t", v->stage, v->variant, mixed ? "mixed" : o[at].nvcc);
    if (o[at].nvcc[0] == '-') printf("-\n");       /* no code of this architecture */
    else printf("%016llx\n", (unsigned long long)h);
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

static int print_sources(char **file, int n)
{
    uint64_t *h = malloc(sizeof *h * (size_t)(n + 1));
    if (!h) return 1;
    for (int i = 0; i < n; i++) {
        char *text = file_text(file[i], NULL);
        if (!text) return 2;
        h[i] = source_digest(text);
        free(text);
    }
    printf("%016llx\n", (unsigned long long)digest_set(h, (size_t)n));
    free(h);
    return 0;
}

int main(int argc, char **argv)
{
    const char *paths_at = NULL;
    int arch = 90, functions = 0, first = 1;
    if (argc > 1 && !strcmp(argv[1], "--help")) return fputs(usage, stdout) < 0;
    if (argc > 2 && !strcmp(argv[1], "--sources"))
        return print_sources(argv + 2, argc - 2);
    for (; first < argc && !strncmp(argv[first], "--", 2); first++) {
        if (!strcmp(argv[first], "--functions")) functions = 1;
        else if (!strcmp(argv[first], "--arch") && first + 1 < argc)
            arch = atoi(argv[++first]);
        else if (!strcmp(argv[first], "--paths") && first + 1 < argc)
            paths_at = argv[++first];
        else break;
    }
    const int n = argc - first;
    if (n < 1 || !strncmp(argv[first], "--", 2)) {
        fprintf(stderr, "kcp-digest: found %s, expected options and objects (--help)\n",
                n < 1 ? "no object" : argv[first]);
        return 2;
    }
    struct object *o = calloc((size_t)n, sizeof *o);
    char *paths = paths_at ? file_text(paths_at, NULL) : NULL;
    if (!o || (paths_at && !paths)) return 2;
    for (int i = 0; i < n; i++)
        if (object_read(&o[i], argv[first + i], arch)) return 2;
    if (functions) printf("object\tbytes\tdigest\n");
    else printf("stage\tvariant\tnvcc\tdigest\n");
    for (int i = 0; i < n; i++) {
        if (functions) print_functions(&o[i]);
        for (int j = 0; j < o[i].variants && !functions; j++)
            if (print_variant(o, n, i, &o[i].variant[j], paths)) return 1;
    }
    return ferror(stdout) || fflush(stdout);
}
