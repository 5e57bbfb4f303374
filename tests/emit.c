/* emit.c -- the judge's cases as .npy files, and the verdict on what came back.
 *
 * Book: CONTRIBUTING.md, "Kernels written elsewhere".  Checked by: tests/cli.sh.
 * Next: main.c.
 *
 * DIR/cases.txt names stage, seed, list and storage; DIR/case_007/forward/ holds the
 * inputs, one file a field, and case.txt the sizes and options. A foreign kernel adds
 * its outputs beside them under their fields' names (do_ is do.npy, of course).
 */
#include "emit.h"
#include "npy.h"
#include "trial.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const storages[] = { "f64", "f32", "bf16" };
static const char *const passes[] = { "forward", "backward" };

static void path_of(char *path, size_t n, const char *dir, int id, int pass,
                    const char *file)
{
    snprintf(path, n, "%s/case_%03d/%s/%s", dir, id, passes[pass],
             !strcmp(file, "do_") ? "do" : file);
}

static int make_dir(const char *path)
{
    if (!mkdir(path, 0777) || errno == EEXIST) return 0;
    fprintf(stderr, "kcp-check: %s: %s, expected a directory I can make\n", path,
            strerror(errno));
    return 2;
}

/* The shape of a tensor's file: states may be turned, as --state-layout says. */
static void file_dims(const struct kcp_field *f, const struct kcp_call *c,
                      const struct tensor *t, int64_t *dim)
{
    const int turned = f && c->layout == KCP_VK && !strcmp(f->shape, "N HV K V");
    for (int d = 0; d < t->nd; d++)
        dim[d] = t->dim[turned && d > 1 ? 5 - d : d];
}

static int write_field(const char *path, const struct kcp_field *f,
                       const struct kcp_call *c, const struct tensor *t,
                       enum kcp_storage storage)
{
    struct npy a = { .nd = t->nd, .data = t->p };
    char why[512];
    int64_t *wide = NULL;
    file_dims(f, c, t, a.dim);
    a.kind = t->store == KCP_I64 ? NPY_I64 : t->store == KCP_I32 ? NPY_I32
           : storage == KCP_F64 ? NPY_F64 : NPY_F32;
    if (t->store == KCP_I32) {                            /* npy holds int64 in memory */
        if (!(wide = malloc(8 * (size_t)t->n + 8))) return 2;
        for (int64_t i = 0; i < t->n; i++) wide[i] = ((int *)t->p)[i];
        a.data = wide;
    }
    const int bad = npy_write(path, &a, why, sizeof why);
    free(wide);
    if (bad) fprintf(stderr, "kcp-check: %s\n", why);
    return bad ? 2 : 0;
}

static int write_sizes(const char *path, const struct kcp_call *c, const struct kcase *k)
{
    FILE *f = fopen(path, "w");
    if (!f) return fprintf(stderr, "kcp-check: %s: cannot write\n", path), 2;
    fprintf(f, "T %lld\nN %d\nNS %d\nNC %d\nR %d\nH %d\nHV %d\nK %d\nV %d\nC %d\nKG %d\n"
            "D %d\nWc %d\n", (long long)c->T, c->N, c->NS, c->NC, c->R, c->H, c->HV, c->K,
            c->V, c->C, c->KG, c->D, c->Wc);
    fprintf(f, "model %d\ngate %d\nbeta_form %d\nact %d\nlayout %d\nl2norm %d\nreuse_M %d\n"
            "shift %d\nscale %.17g\nlower_bound %.17g\nL %lld\n", c->model, c->gate,
            c->beta_form, c->act, c->layout, c->l2norm, c->reuse_M, c->shift, c->scale,
            c->lower_bound, (long long)k->L);
    return fclose(f) ? 2 : 0;
}

/* The same for kcp-run, in its own words: kcp-run --stage NN $(cat options.txt) ... */
static int write_options(const char *path, const struct kcp_stage *s,
                         const struct kcp_call *c, const struct kcp_plan *p)
{
    static const char *const gates[] = { "raw", "softplus", "bounded" };
    static const char *const betas[] = { "raw", "sigmoid", "sigmoid2" };
    FILE *f = fopen(path, "w");
    if (!f) return fprintf(stderr, "kcp-check: %s: cannot write\n", path), 2;
    fprintf(f, "--model %s --gate %s --beta %s --act %s --state-layout %s --scale %.17g"
            " --chunk %d%s%s%s", model_name[c->model], gates[c->gate],
            betas[c->beta_form], c->act ? "silu" : "none", c->layout ? "vk" : "kv",
            c->scale, c->C, c->l2norm ? " --l2norm" : "", c->reuse_M ? " --reuse-m" : "",
            c->shift ? " --shift" : "");
    if (c->pass == KCP_BACKWARD) fprintf(f, " --backward");
    if (c->lower_bound < 0) fprintf(f, " --lower-bound %.17g", c->lower_bound);
    if (s->ranks && p->L) fprintf(f, " --canonical %lld", (long long)p->L);
    if (s->ranks) fprintf(f, " --form %s --cuts ", form_name[c->form]);
    for (int r = 0; s->ranks && r <= p->R; r++)
        fprintf(f, "%s%lld", r ? "," : "", (long long)p->cuts[r]);
    return fprintf(f, "\n") < 0 || fclose(f) ? 2 : 0;
}

static int emit_pass(const char *dir, const struct kcp_stage *s, const struct kcase *k,
                     int pass, enum kcp_storage storage)
{
    struct kcp_plan *p = case_plan(k, s->ranks ? k->call.R : 1);
    const struct expected *x = p ? expected_of(s, k, pass, storage, p) : NULL;
    char path[4096], file[32];
    int status = x ? 0 : 2;
    path_of(path, sizeof path, dir, k->id, pass, "");
    if (!status) status = make_dir(path);
    struct kcp_call c = p ? call_of(s, k, p, 0, pass) : k->call;
    if (s->ranks) c.T = k->call.T;                 /* the whole batch, uncut */
    path_of(path, sizeof path, dir, k->id, pass, "case.txt");
    if (!status) status = write_sizes(path, &c, k);
    path_of(path, sizeof path, dir, k->id, pass, "options.txt");
    if (!status) status = write_options(path, s, &c, p);
    for (int i = 0; i < s->nfields && !status; i++) {
        const struct kcp_field *f = &s->fields[i];
        const struct tensor *t = bag_find(&x->in, f->name);
        if (!field_in(f) || !field_used(f, &c) || !t) continue;
        snprintf(file, sizeof file, "%s.npy", !strcmp(f->name, "do_") ? "do" : f->name);
        path_of(path, sizeof path, dir, k->id, pass, file);
        status = write_field(path, f, &c, t, storage);
    }
    if (!status && s->ranks) {
        path_of(path, sizeof path, dir, k->id, pass, "cu_seqlens.npy");
        struct tensor t = { .nd = 1, .dim = { k->call.N + 1 }, .n = k->call.N + 1,
                            .store = KCP_I64, .p = (void *)k->cu };
        status = write_field(path, NULL, &c, &t, storage);
    }
    kcp_plan_free(p);
    return status;
}

int emit_cases(const char *dir, const struct options *o)
{
    const struct kcp_stage *s = o->stage ? stage_find(o->stage) : NULL;
    if (!s) return fprintf(stderr, "kcp-check: --emit: found no stage, expected --stage NN"
                           " of a stage with arrays\n"), 2;
    int n = 0, status = make_dir(dir);
    char path[4096];
    snprintf(path, sizeof path, "%s/cases.txt", dir);
    FILE *f = status ? NULL : fopen(path, "r");
    if (f) {                       /* another list's cases, and outputs beside them */
        fclose(f);
        return fprintf(stderr, "kcp-check: %s: found one, expected a directory without"
                       " cases\n", path), 2;
    }
    if (!status && !(f = fopen(path, "w")))
        fprintf(stderr, "kcp-check: %s: %s, expected a file I can write\n", path,
                strerror(errno));
    if (!f) return 2;
    struct kcase *list = cases_make(s, o->full, 0, o->seed, o->ranks, &n);
    fprintf(f, "stage %s\nseed %llu\nfull %d\nranks %d\nstorage %s\n", s->name,
            (unsigned long long)o->seed, o->full, o->ranks, storages[o->storage]);
    status = fclose(f) ? 2 : 0;
    for (int i = 0; i < n && !status; i++) {
        snprintf(path, sizeof path, "%s/case_%03d", dir, i);
        status = make_dir(path);
        for (int pass = 0; pass <= has_backward(s) && !status; pass++)
            status = emit_pass(dir, s, &list[i], pass, o->storage);
    }
    if (!status) printf("%d cases of %s in %s, inputs rounded to %s\n", n, s->name, dir,
                        storages[o->storage]);
    free(list);
    return status;
}

/* One output file against what it should be, by rank where ranks cut it. */
static int judge_file(const char *path, const struct kcp_stage *s,
                      const struct kcp_field *f, const struct expected *x,
                      const struct kcase *k, const struct kcp_plan *p, struct worst *w,
                      struct kcp_report *rep)
{
    const struct tensor *t = bag_find(&x->want, f->name);
    struct npy a;
    char why[512], found[128], want[128];
    if (!t) return 0;
    if (npy_read(path, &a, why, sizeof why)) return report_fail(rep, "%s", why), 1;
    int64_t dim[4];
    int bad = a.nd != t->nd || a.kind == NPY_I64 || a.kind == NPY_I32;
    file_dims(f, &k->call, t, dim);
    for (int d = 0; d < t->nd && !bad; d++) bad = a.dim[d] != dim[d];
    if (bad) report_fail(rep, "%s: found %s, expected %s", path,
                         npy_shape(a.nd, a.dim, found, sizeof found),
                         npy_shape(t->nd, dim, want, sizeof want));
    const int cut = s->ranks && f->shape[0] == 'T';
    for (int r = 0; r < (cut ? p->R : 1) && !bad; r++) {
        struct kcp_call c = call_of(s, k, p, r, x->pass);
        struct slice y = { .stage = s, .field = f, .call = &c, .nd = t->nd, .rank = r,
                           .all = t->p, .all_rows = t->dim[0], .rms_v = x->rms_v,
                           .rms_sum = x->rms_sum,
                           .judged = x->judged };
        int64_t row = t->dim[0] ? t->n / t->dim[0] : 0;
        memcpy(y.dim, t->dim, sizeof y.dim);
        if (cut) y.first = p->ctx[r].begin, y.dim[0] = p->ctx[r].end - y.first;
        y.got = (double *)a.data + y.first * row;
        y.want = (double *)t->p + y.first * row;
        check_slice(&y, w);
    }
    npy_free(&a);
    return bad;
}

static void judge_dir(const char *dir, const struct kcp_stage *s, const struct kcase *k,
                      int pass, enum kcp_storage storage, struct kcp_report *rep)
{
    struct kcp_plan *p = case_plan(k, s->ranks ? k->call.R : 1);
    const struct expected *x = p ? expected_of(s, k, pass, storage, p) : NULL;
    struct worst w = { 0 };
    const struct kcp_call c = p ? call_of(s, k, p, 0, pass) : k->call;
    char path[4096], file[32];
    int bad = !x;
    for (int i = 0; x && i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        if (field_in(f) || !field_used(f, &c)) continue;
        snprintf(file, sizeof file, "%s.npy", f->name);
        path_of(path, sizeof path, dir, k->id, pass, file);
        bad |= judge_file(path, s, f, x, k, p, &w, rep);
    }
    kcp_plan_free(p);
    if (!bad && (w.nan || !(w.err <= w.tol)))
        report_fail(rep, "case %d %s: %s rank %d head %d: error %.2e > %.0e; worst at %s%s:"
                    " %.9g, should be %.9g", k->id, passes[pass], w.field, w.rank, w.head,
                    w.err, w.tol, w.field, w.where, w.got, w.want);
    else if (!bad) rep->pass++;
    if (!bad && w.tol > 0)
        printf("  case %3d %-9s worst %s %.1e of %.0e\n", k->id, passes[pass], w.field,
               w.err, w.tol);
}

int judge_foreign(const char *dir, const struct options *o, struct kcp_report *rep)
{
    char path[4096], stage[32], storage[8];
    unsigned long long seed;
    int full, ranks, n = 0, as = 0;
    snprintf(path, sizeof path, "%s/cases.txt", dir);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "stage %31s seed %llu full %d ranks %d storage %7s", stage, &seed,
                     &full, &ranks, storage) != 5) {
        if (f) fclose(f);
        fprintf(stderr, "kcp-check: %s: %s, expected what --emit wrote\n", path,
                f ? "not readable as a list of cases" : "not found");
        return 2;
    }
    fclose(f);
    while (as < 2 && strcmp(storages[as], storage)) as++;
    const struct kcp_stage *s = stage_find(stage);
    if (!s || strcmp(storages[as], storage) || ranks < 0 || ranks > 8)
        return fprintf(stderr, "kcp-check: %s: found stage %s, storage %s, expected"
                       " what --emit wrote\n", path, stage, storage), 2;
    struct kcase *list = cases_make(s, full, 0, seed, ranks, &n);
    printf("%s, %d cases, %s\n", s->name, n, storage);
    for (int i = 0; i < n; i++)
        for (int pass = 0; pass <= has_backward(s); pass++)
            judge_dir(dir, s, &list[i], pass, as, rep);
    free(list);
    return report_close(rep, o->strict);
}
