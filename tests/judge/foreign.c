/* foreign.c -- judges outputs that another program computed from cases of --emit.
 * Book: CONTRIBUTING.md, "Kernels written elsewhere".
 *
 * A file na.txt in a pass's directory means that the program cannot run this pass. */
#include "emit.h"
#include "base/npy.h"
#include "trial.h"
#include <stdlib.h>
#include <string.h>

/* Compares an output file with the expected tensor. A tensor with one row per token is
 * compared rank by rank. */
static int judge_file(const char *path, const struct kcp_stage *s,
                      const struct kcp_field *f, const struct expected *x,
                      const struct kcase *k, const struct kcp_plan *p, struct worst *w,
                      struct kcp_report *rep)
{
    const struct tensor *t = tensor_find(&x->want, f->name);
    struct npy a;
    char why[512], found[128], want[128];
    if (!t) return 0;
    if (npy_read(path, &a, why, sizeof why)) {
        report_fail(rep, "%s", why);
        return 1;
    }
    int64_t dim[4];
    int bad = a.nd != t->nd || a.kind == NPY_I64 || a.kind == NPY_I32;
    emit_dims(f, &k->call, t, dim);
    for (int d = 0; d < t->nd && !bad; d++) bad = a.dim[d] != dim[d];
    if (bad) report_fail(rep, "%s: found %s, expected %s", path,
                         npy_shape(a.nd, a.dim, found, sizeof found),
                         npy_shape(t->nd, dim, want, sizeof want));
    const int cut = s->ranks && f->shape[0] == 'T';
    for (int r = 0; r < (cut ? p->R : 1) && !bad; r++) {
        struct kcp_call c = call_of(s, k, p, r, x->pass);
        struct slice y = { .stage = s, .field = f, .call = &c, .nd = t->nd, .rank = r,
                           .all = t->p, .all_rows = t->dim[0], .sizes = x->sizes,
                           .alike = k->alike, .judged = x->judged,
                           .moved = x->judged == KCP_F64 ? NULL : expected_moved };
        int64_t row = t->dim[0] ? t->n / t->dim[0] : 0;
        memcpy(y.dim, t->dim, sizeof y.dim);
        if (cut) {
            y.first = p->ctx[r].begin;
            y.dim[0] = p->ctx[r].end - y.first;
        }
        y.got = (double *)a.data + y.first * row;
        y.want = (double *)t->p + y.first * row;
        check_slice(&y, w);
    }
    npy_free(&a);
    return bad;
}

static int exists(const char *dir, int i, int pass, const char *file)
{
    char path[4096];
    emit_path(path, sizeof path, dir, i, pass, file);
    FILE *f = fopen(path, "r");
    if (f) fclose(f);
    return f != NULL;
}

/* Returns 1 if the directory of this pass of case i contains an output or na.txt. */
static int is_answered(const char *dir, const struct kcp_stage *s, int i, int pass)
{
    char file[32];
    if (exists(dir, i, pass, "na.txt")) return 1;
    for (int j = 0; j < s->nfields; j++) {
        snprintf(file, sizeof file, "%s.npy", s->fields[j].name);
        if (!field_in(&s->fields[j]) && exists(dir, i, pass, file)) return 1;
    }
    return 0;
}

static void judge_dir(const char *dir, const struct kcp_stage *s, const struct kcase *k,
                      int i, int pass, enum kcp_storage storage,
                      struct kcp_report *rep)
{
    struct kcp_plan *p = case_plan(k, s->ranks ? k->call.R : 1);
    const struct expected *x = p ? expected_of(s, k, pass, storage, p) : NULL;
    struct worst w = { 0 };
    const struct kcp_call c = p ? call_of(s, k, p, 0, pass) : k->call;
    char path[4096], file[32], name[32], text[400];
    int bad = !x;
    snprintf(name, sizeof name, "case_%03d/%s", i, emit_pass_name[pass]);
    if (exists(dir, i, pass, "na.txt")) {
        kcp_plan_free(p);
        rep->na++;
        return;
    }
    if (x && !is_answered(dir, s, i, pass)) {
        report_fail(rep, "%s: no output", name);
        bad = 1;
    }
    for (int j = 0; !bad && j < s->nfields; j++) {
        const struct kcp_field *f = &s->fields[j];
        if (field_in(f) || !field_used(f, &c)) continue;
        snprintf(file, sizeof file, "%s.na", f->name);   /* the system lacks it */
        if (exists(dir, i, pass, file)) continue;
        snprintf(file, sizeof file, "%s.npy", f->name);
        emit_path(path, sizeof path, dir, i, pass, file);
        bad = judge_file(path, s, f, x, k, p, &w, rep);
    }
    kcp_plan_free(p);
    worst_text(&w, 1, text, sizeof text);
    if (!bad && is_wrong(&w)) report_fail(rep, "%s: %s", name, text);
    else if (!bad) rep->pass++;
    if (!bad && !(w.tol > 0)) printf("  %-18s has no numbers to compare\n", name);
    else if (!bad && w.err <= w.tol)
        printf("  %-18s worst %s %.1e of %.1e\n", name, w.field, w.err, w.tol);
}

/* Judges case i. If the case fails, prints a command that repeats the case. */
static void judge_case_dir(const char *dir, const struct kcp_stage *s,
                           const struct kcase *k, int i, enum kcp_storage storage,
                           struct kcp_report *rep)
{
    char words[1024];
    const int before = rep->fail;
    for (int pass = 0; pass <= has_backward(s); pass++)
        judge_dir(dir, s, k, i, pass, storage, rep);
    if (rep->fail == before || (rep->quiet && rep->fail >= 20)) return;
    case_print(k, words, sizeof words);
    printf("        repeat: %s --stage %.2s --storage %s --emit NEW --case '%s'\n",
           judge_program, s->name, storage_name[storage], words);
}

static int refuse(const char *path, const char *found)
{
    fprintf(stderr, "kcp-check: %s: found %s, expected what --emit wrote\n", path,
            found);
    return 2;
}

/* Reads words.txt of case i. Returns 0, or 2 after printing one line on stderr. */
static int read_case(const char *dir, int i, struct kcase *k)
{
    char path[4096], words[1024] = "", why[300] = "no words";
    snprintf(path, sizeof path, "%s/case_%03d/words.txt", dir, i);
    FILE *f = fopen(path, "r");
    if (!f) return refuse(path, "no file");
    const int read = fgets(words, sizeof words, f) != NULL;
    fclose(f);
    words[strcspn(words, "\n")] = 0;
    return read && !case_parse(words, k, why, sizeof why) ? 0 : refuse(path, why);
}

/* Reads the cases into a list, which the caller frees. Returns NULL after printing one
 * line on stderr. */
static struct kcase *read_list(const char *dir, const struct kcp_stage **s,
                               enum kcp_storage *storage, int *n)
{
    char path[4096], stage[32], word[8], found[80] = "no list of cases";
    int as = 0;
    snprintf(path, sizeof path, "%s/cases.txt", dir);
    FILE *f = fopen(path, "r");
    const int read = f ? fscanf(f, "stage %31s storage %7s cases %d", stage, word, n)
                       : 0;
    if (f) fclose(f);
    if (read == 3) snprintf(found, sizeof found, "stage %s, storage %s", stage, word);
    while (read == 3 && as < 3 && strcmp(storage_name[as], word)) as++;
    *s = read == 3 ? stage_find(stage) : NULL;
    *storage = as;
    if (!*s || as == 3 || *n < 1) {
        refuse(path, f ? found : "no file");
        return NULL;
    }
    struct kcase *list = alloc_or_exit((size_t)*n * sizeof *list);
    for (int i = 0; i < *n; i++)
        if (read_case(dir, i, &list[i])) {
            free(list);
            return NULL;
        }
    return list;
}

int judge_foreign(const char *dir, const struct options *o, struct kcp_report *rep)
{
    const struct kcp_stage *s;
    enum kcp_storage storage;
    int n = 0, answers = 0;
    struct kcase *list = read_list(dir, &s, &storage, &n);
    if (!list) return 2;
    for (int i = 0; i < n && !answers; i++)
        answers = is_answered(dir, s, i, 0) ||
                  (has_backward(s) && is_answered(dir, s, i, 1));
    if (!answers) {
        fprintf(stderr, "kcp-check: %s has no outputs; write each output as NAME.npy "
                "beside its case's inputs, or na.txt if a case is not supported\n",
                dir);
        free(list);
        return 2;
    }
    printf("%s, %d cases, %s\n", s->name, n, storage_name[storage]);
    for (int i = 0; i < n; i++) judge_case_dir(dir, s, &list[i], i, storage, rep);
    free(list);
    return report_close(rep, o->strict);
}
