/* main.c -- kcp-proxy: finds missing proxy fences in a kernel's PTX.
 *
 * Book: chapter 18.  Checked by: tests/cli/proxy.sh, which removes fences.
 * Next: ../cli/proxy.sh.
 *
 * wgmma and the copy engine access shared memory through the async proxy, threads
 * through the generic proxy. A thread that has written must execute
 * fence.proxy.async before the barrier or arrival that makes the writes visible to
 * an engine. No run of a kernel can prove that the fence exists, so this program
 * walks all paths of the PTX and prints pairs of places. The first place is a write
 * to shared memory. The second place is a barrier, an arrival or a copy to global
 * memory that the write reaches without a fence, or a load of the copy engine that
 * may overwrite the written bytes. wgmma is no second place, because a warpgroup
 * passes a barrier before wgmma. threads_alone.tsv lists pairs that are correct,
 * because only threads read those bytes.
 * Usage: kcp-proxy FILE.ptx: prints TSV of kernel, first place, second place. */
#define _GNU_SOURCE
#include "ref/kcp.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum kind { OTHER, WRITES, FENCES, SYNCS, MULTIPLIES, LOADS, SENDS, BRANCHES,
            ENDS };
enum { MOST_FILES = 400, MOST_TARGETS = 64 };

struct place { int file, line, outer_file, outer_line; };
struct step {
    enum kind kind;
    int conditional, targets;
    char *target[MOST_TARGETS];
    struct place at;
    int from;                      /* a write that reaches this unfenced, or -1 */
    int number;                    /* of a write: its index */
    uint64_t *unfenced;            /* bit per write that reaches this without a fence */
};
struct label { char *name; int step; };

static struct step *step;
static struct label *label;
static int steps, labels, engine, writes, words;
static char *file_name[MOST_FILES];

static void refuse(const char *what, const char *why)
{
    fprintf(stderr, "kcp-proxy: %s: %s\n", what, why);
    exit(2);
}

static void *grown(void *p, int n, size_t size)
{
    if (n & (n - 1)) return p;                     /* doubled at powers of two */
    p = realloc(p, (n ? 2 * (size_t)n : 1) * size);
    if (!p) refuse("malloc", "out of memory");
    return p;
}

static char *copied(const char *text, size_t n)
{
    char *copy = strndup(text, n);
    if (!copy) refuse("malloc", "out of memory");
    return copy;
}

static int has(const char *text, const char *word)
{
    return strstr(text, word) != NULL;
}

static int begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static enum kind kind_of(const char *op)
{
    if (begins(op, "fence.proxy.async")) return FENCES;
    if (begins(op, "wgmma.mma_async")) return MULTIPLIES;
    if (begins(op, "cp.async.bulk.") && has(op, "shared::cluster.global"))
        return LOADS;
    if (begins(op, "cp.async.bulk.") && has(op, "global.shared::cta")) return SENDS;
    if (begins(op, "cp.async.mbarrier.arrive")) return SYNCS;
    if (begins(op, "mbarrier.arrive") || begins(op, "barrier.cluster.arrive") ||
        begins(op, "bar.sync") || begins(op, "bar.arrive") ||
        begins(op, "bar.red") || begins(op, "barrier.sync") ||
        begins(op, "barrier.arrive") || begins(op, "barrier.red") ||
        begins(op, "barrier.cta")) return SYNCS;
    if (begins(op, "st.shared") || begins(op, "stmatrix") || begins(op, "red.shared") ||
        begins(op, "atom.shared") || begins(op, "cp.async.c")) return WRITES;
    if (begins(op, "st.") && !begins(op, "st.global") && !begins(op, "st.local") &&
        !begins(op, "st.param") && !has(op, ".global.")) return WRITES;
    if (begins(op, "bra") || begins(op, "brx.idx")) return BRANCHES;
    if (begins(op, "ret") || begins(op, "exit") || begins(op, "trap")) return ENDS;
    return OTHER;
}

/* Reads the labels after "bra": one label, or a table of labels for brx.idx. */
static void read_targets(struct step *s, const char *op)
{
    const char *at = strpbrk(op, " \t");
    while (at && *at) {
        at += strspn(at, " \t,{}");
        const size_t n = strcspn(at, " \t,{};");
        if (n && *at == '$' && s->targets == MOST_TARGETS)
            refuse("brx.idx", "a branch with more than 64 targets");
        if (n && *at == '$') s->target[s->targets++] = copied(at, n);
        at += n;
        if (*at == ';') break;
    }
}

static void add_step(const char *text, struct place at)
{
    struct step s = { .at = at, .from = -1 };
    while (isspace((unsigned char)*text)) text++;
    if (*text == '@') {
        s.conditional = 1;
        text += strcspn(text, " \t");
        text += strspn(text, " \t");
    }
    s.kind = kind_of(text);
    if (s.kind == OTHER) return;
    if (s.kind == MULTIPLIES || s.kind == LOADS || s.kind == SENDS) engine = 1;
    if (s.kind == BRANCHES) read_targets(&s, text);
    if (s.kind == WRITES) s.number = writes++;
    step = grown(step, steps, sizeof *step);
    step[steps++] = s;
}

static int step_of(const char *name)
{
    for (int i = 0; i < labels; i++)
        if (!strcmp(label[i].name, name)) return label[i].step;
    return -1;
}

/* Records that `write` reaches step `to` without a fence. Returns 1 if this is new. */
static int reach(int to, int write)
{
    if (to < 0 || to >= steps || write < 0 || step[to].from >= 0) return 0;
    step[to].from = write;
    return 1;
}

/* Returns the write that still has no fence after step i; -1: none, as after every
 * fence or SYNCS. */
static int leaves(int i)
{
    const struct step *s = &step[i];
    if (s->kind == WRITES) return i;
    if (s->kind == FENCES || s->kind == SYNCS) return s->conditional ? s->from : -1;
    return s->from;
}

/* Records at step `to` all writes that are unfenced after step i. Unlike in reach(), a
 * SYNCS does not end a write, because an engine may still overwrite its bytes. */
static int reach_unfenced(int to, int i)
{
    int more = 0;
    if (to < 0 || to >= steps) return 0;
    const struct step *s = &step[i];
    for (int w = 0; w < words; w++) {
        uint64_t out = s->unfenced[w];
        if (s->kind == FENCES && !s->conditional) out = 0;
        if (s->kind == WRITES && s->number / 64 == w)
            out |= (uint64_t)1 << s->number % 64;
        more |= (out & ~step[to].unfenced[w]) != 0;
        step[to].unfenced[w] |= out;
    }
    return more;
}

static void walk_kernels(void)
{
    words = writes / 64 + 1;
    for (int i = 0; i < steps; i++) {
        step[i].unfenced = calloc((size_t)words, 8);
        if (!step[i].unfenced) refuse("malloc", "out of memory");
    }
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < steps; i++) {
            const struct step *s = &step[i];
            const int out = leaves(i);
            const int goes_on = s->conditional ||
                                (s->kind != BRANCHES && s->kind != ENDS);
            if (goes_on) more |= reach(i + 1, out) | reach_unfenced(i + 1, i);
            for (int j = 0; j < s->targets; j++) {
                const int to = step_of(s->target[j]);
                more |= reach(to, out) | reach_unfenced(to, i);
            }
        }
    }
}

static void print_place(struct place p)
{
    const int tile = p.outer_line && has(file_name[p.file], "cuda/tile/");
    const int file = tile ? p.outer_file : p.file;
    const char *name = file_name[file] ? file_name[file] : "?";
    const char *from = strstr(name, "cuda/");
    printf("%s:%d", from ? from : name, tile ? p.outer_line : p.line);
}

/* Prints a pair of places. All loads of a kernel are printed as line 0. */
static void print_pair(const char *kernel, int write, int i)
{
    struct place to = step[i].at;
    if (step[i].kind == LOADS) to.line = to.outer_line = 0;
    printf("%s\t", kernel);
    print_place(step[write].at);
    putchar('\t');
    print_place(to);
    putchar('\n');
}

static void print_kernel(const char *kernel)
{
    for (int i = 0; i < steps && engine; i++) {
        const struct step *s = &step[i];
        if ((s->kind == SYNCS || s->kind == SENDS) && s->from >= 0)
            print_pair(kernel, s->from, i);
        for (int j = 0; j < steps && s->kind == LOADS; j++)
            if (step[j].kind == WRITES &&
                s->unfenced[step[j].number / 64] >> step[j].number % 64 & 1)
                print_pair(kernel, j, i);
    }
}

static void end_kernel(const char *kernel)
{
    walk_kernels();
    print_kernel(kernel);
    for (int i = 0; i < steps; i++) free(step[i].unfenced);
    steps = labels = engine = writes = 0;
}

/* Parses for example ".loc 2 31 5, function_name $x, inlined_at 1 90 3". */
static struct place read_place(const char *text)
{
    struct place p = { 0 };
    const char *outer = strstr(text, "inlined_at");
    sscanf(text, " .loc %d %d", &p.file, &p.line);
    if (outer) sscanf(outer, "inlined_at %d %d", &p.outer_file, &p.outer_line);
    if (p.file < 0 || p.file >= MOST_FILES || p.outer_file < 0 ||
        p.outer_file >= MOST_FILES)
        refuse(".loc", "the number of a file is not from 0 to 399");
    return p;
}

static void read_file_name(const char *text)
{
    int n;
    const char *from = strchr(text, '"');
    if (sscanf(text, " .file %d", &n) != 1 || n < 0 || n >= MOST_FILES || !from) return;
    free(file_name[n]);
    file_name[n] = copied(from + 1, strcspn(from + 1, "\""));
}

static void add_label(const char *name, size_t n)
{
    label = grown(label, labels, sizeof *label);
    label[labels++] = (struct label){ copied(name, n), steps };
}

/* Reads a line inside a kernel: a label, or instructions. A label inside nested braces
 * belongs to a waiting loop of inline assembly and is ignored. */
static void read_line(char *line, int depth, struct place at)
{
    char *colon = strchr(line, ':');
    const size_t name = strspn(line, " \t");
    if (line[name] == '$' && colon && !strpbrk(line + name, " ;(")) {
        if (depth == 1) add_label(line + name, (size_t)(colon - line) - name);
        return;
    }
    for (char *one = strtok(line, ";"); one; one = strtok(NULL, ";")) {
        while (isspace((unsigned char)*one) || *one == '{' || *one == '}') one++;
        if (*one && !begins(one, "//")) add_step(one, at);
    }
}

/* Opens a regular file, because the file is read twice; returns NULL for others. */
static FILE *open_ptx(const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return NULL;
    return fopen(path, "r");
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kcp-proxy %s\n", kcp_version());
        return 0;
    }
    if (argc != 2) refuse("usage", "kcp-proxy FILE.ptx, one file of PTX");
    FILE *f = open_ptx(argv[1]);
    char *line = NULL, kernel[400] = "";
    size_t bytes = 0;
    int depth = 0, kernels = 0;
    struct place at = { 0 };
    if (!f) refuse(argv[1], "cannot read it as a file of PTX");
    while (getline(&line, &bytes, f) > 0)
        if (has(line, ".file")) read_file_name(line);
    rewind(f);
    while (getline(&line, &bytes, f) > 0) {
        const char *entry = strstr(line, ".entry ");
        const int was = depth;
        if (entry) sscanf(entry, ".entry %399[^( \t\n]", kernel);
        for (const char *c = line; *c && kernel[0]; c++)
            depth += (*c == '{') - (*c == '}');
        if (has(line, ".loc")) at = read_place(line);
        else if (was && depth) read_line(line, was, at);
        if (was && !depth) {
            end_kernel(kernel);
            kernel[0] = 0;
            kernels++;
        }
    }
    if (kernel[0]) refuse(argv[1], "PTX that ends inside a kernel");
    if (!kernels) refuse(argv[1], "no kernel: not a file of PTX");
    if (fflush(stdout) || ferror(stdout)) refuse("stdout", "cannot write");
    free(line);
    return fclose(f) != 0;
}
