/* fields.c -- checks the names of files, loads a stage's inputs from files, and makes
 * outputs filled with NaN.
 * Book: chapter 00.
 * All stages share this code, which reads names and shapes from kcp_stages[]. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* Writes the name of a field's file without ".npy", e.g. "q" for the layer's q_raw. */
static const char *file_of(const struct kcp_field *f, char file[24])
{
    const char *name = field_file(f);
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, "_raw") == 0) n -= 4;
    snprintf(file, 24, "%.*s", (int)n, name);
    return file;
}

static int is_unused(const struct run *x, const struct kcp_field *f)
{
    const struct kcp_call c = { .model = x->o.model };
    return !field_used(f, &c);
}

/* Checks that numbers are finite and that log decays are at most 0. */
static int check_input(struct run *x, const struct kcp_field *f, const struct tensor *a)
{
    const int raw = x->o.gate == KCP_GATE_RAW && strcmp(f->name, "g_raw") == 0;
    if (f->store == KCP_I64) return 0;
    return array_check(x, a, raw || !strcmp(f->name, "g") || !strcmp(f->name, "G"));
}

static int load_input(struct run *x, const struct kcp_field *f)
{
    char file[24];
    file_of(f, file);
    if (!field_in(f) || is_unused(x, f) || tensor_find(&x->a, f->name)) return 0;
    if (field_is_grid(f)) return 0;
    if (!array_exists(x, file) &&
        (f->when == KCP_MAYBE || strcmp(f->name, "cu_seqlens") == 0))
        return 0;
    if (array_load(x, &x->size, f->name, file, field_shape(x, f), f->store) != 0)
        return -1;
    struct tensor *a = tensor_find(&x->a, f->name);
    snprintf(a->file, sizeof a->file, "%s", file);
    if (x->o.gate == KCP_GATE_RAW &&
        (strcmp(f->name, "A_log") == 0 || strcmp(f->name, "dt_bias") == 0))
        x->note = "--gate raw ignores A_log.npy and dt_bias.npy: their gradients are 0";
    return check_input(x, f, a);
}

int inputs_load(struct run *x, const struct kcp_stage *s)
{
    for (int i = 0; i < s->nfields; i++)
        if (load_input(x, &s->fields[i]) != 0) return -1;
    return 0;
}

/* Returns 1 if this run does not compute optional output f: a size in the shape of f is
 * unknown, or f is the gradient of an input that is not given. */
static int is_missing(const struct run *x, const struct kcp_stage *s,
                      const struct kcp_field *f)
{
    int64_t dim[4];
    if (shape_dims(&x->size, field_shape(x, f), dim) < 0) return 1;
    for (int i = 0; i < s->nfields && f->name[0] == 'd'; i++)
        if (strcmp(s->fields[i].name, f->name + 1) == 0)
            return !tensor_find(&x->a, f->name + 1);
    return 0;
}

int outputs_make(struct run *x, const struct kcp_stage *s)
{
    char file[24];
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        if (field_in(f) || is_unused(x, f)) continue;
        if (f->when == KCP_MAYBE && is_missing(x, s, f)) continue;
        if (array_out(x, &x->size, f->name, file_of(f, file), field_shape(x, f),
                      f->store) != 0)
            return -1;
    }
    return 0;
}

/* ---- names of files. A misspelt name such as cu_seqlen.npy must be an error. */

static int is_known(const char *name, size_t n)
{
    static const char *const conv[] = { "dw", "x0", "xt", "dxt", "dx0" };
    char file[24];
    if (n == strlen("cu_seqlens") && !memcmp(name, "cu_seqlens", n)) return 1;
    for (int pass = 0; pass < 2; pass++) {
        const struct kcp_stage *s = kcp_stage_find(pass ? "13" : "08");
        for (int j = 0; j < s->nfields; j++)
            if (!field_is_grid(&s->fields[j]) &&
                strlen(file_of(&s->fields[j], file)) == n && !memcmp(name, file, n))
                return 1;
    }
    for (size_t i = 0; i < sizeof conv / sizeof *conv; i++) {
        const size_t m = strlen(conv[i]);
        if (n == m + 2 && !memcmp(name, conv[i], m) && name[m] == '_' &&
            strchr("qkv", name[m + 1]))
            return 1;
    }
    return 0;
}

int names_check(struct run *x)
{
    char unknown[256] = "";
    DIR *d = opendir(x->o.in);
    if (!d)
        return run_error(x, RUN_BAD, "--in", "cannot read %s: %s", x->o.in,
                         strerror(errno));
    for (struct dirent *e = readdir(d); e && !unknown[0]; e = readdir(d)) {
        const size_t n = strlen(e->d_name);
        const char *end = e->d_name + (n > 4 ? n - 4 : 0);
        const int is_array = strcasecmp(end, ".npy") == 0;        /* q.NPY is refused */
        const int is_read = strcmp(end, ".npy") == 0 && is_known(e->d_name, n - 4);
        if (is_array && e->d_name[0] != '.' && !is_read &&
            !has_word(x->o.conv, e->d_name, ","))
            snprintf(unknown, sizeof unknown, "%.255s", e->d_name);
    }
    closedir(d);
    return !unknown[0] ? 0 : run_error(x, RUN_BAD, unknown, "no field has this name; "
                                       "kcp-run --help lists the names");
}
