/* emit.c -- writes the judge's cases as .npy files.
 * Book: CONTRIBUTING.md, "Kernels written elsewhere".
 *
 * DIR/cases.txt contains the stage, the storage type and the number of cases.
 * case_007/words.txt contains the case as text for --case. case_007/forward/ contains
 * one .npy file per input (do.npy for do_), case.txt (sizes and options) and
 * options.txt (form and cuts of ranks). Another program adds one file per output. By
 * default, the cases are random cases and anchors (fixed cases), of small and
 * tensor-core sizes, with K != V up to 256. With --small only small random cases are
 * written, with --shapes only cases with the given K and V, with --case only the given
 * cases. */
#include "emit.h"
#include "base/npy.h"
#include "paths.h"
#include "trial.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const emit_pass_name[] = { "forward", "backward" };

void emit_path(char *path, size_t n, const char *dir, int i, int pass,
               const char *file)
{
    snprintf(path, n, "%s/case_%03d/%s/%s", dir, i, emit_pass_name[pass], file);
}

static int make_dir(const char *path)
{
    if (!mkdir(path, 0777) || errno == EEXIST) return 0;
    fprintf(stderr, "kcp-check: cannot make directory %s: %s\n", path,
            strerror(errno));
    return 2;
}

/* What the text files describe: a stage's n cases, or one pass of one case. */
struct described {
    const struct kcp_stage *stage;
    const struct kcase *k;
    const struct kcp_call *call;
    const struct kcp_plan *plan;
    enum kcp_storage storage;
    int n;
};

/* Writes a text file. Some write errors appear only in fclose. */
static int write_text(const char *path, void (*print)(FILE *, const struct described *),
                      const struct described *x)
{
    FILE *f = fopen(path, "w");
    if (f) print(f, x);
    const int lost = !f || ferror(f);
    if (f && !fclose(f) && !lost) return 0;
    fprintf(stderr, "kcp-check: %s: cannot write: %s\n", path, strerror(errno));
    return 2;
}

void emit_dims(const struct kcp_field *f, const struct kcp_call *c,
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
    emit_dims(f, c, t, a.dim);
    a.kind = storage == KCP_F64 ? NPY_F64 : NPY_F32;
    if (t->store == KCP_I64) a.kind = NPY_I64;
    if (t->store == KCP_I32) a.kind = NPY_I32;
    if (t->store == KCP_I32) {                           /* npy_write needs int64 */
        wide = alloc_or_exit(8 * (size_t)t->n + 8);
        for (int64_t i = 0; i < t->n; i++) wide[i] = ((int *)t->p)[i];
        a.data = wide;
    }
    const int bad = npy_write(path, &a, why, sizeof why);
    free(wide);
    if (bad) fprintf(stderr, "kcp-check: %s\n", why);
    return bad ? 2 : 0;
}

static void print_sizes(FILE *f, const struct described *x)
{
    const struct kcp_call *c = x->call;
    fprintf(f,
            "T %lld\nN %d\nNS %d\nNC %d\nR %d\nH %d\nHV %d\nK %d\nV %d\nC %d\nKG %d\n"
            "D %d\nWc %d\n", (long long)c->T, c->N, c->NS, c->NC, c->R, c->H, c->HV,
            c->K, c->V, c->C, c->KG, c->D, c->Wc);
    fprintf(f, "q_type %d\ng_type %d\nbeta_type %d\n", c->q_type, c->g_type,
            c->beta_type);
    fprintf(f, "model %d\ngate %d\nbeta_form %d\nact %d\nlayout %d\nl2norm %d\n"
            "reuse_M %d\nshift %d\nscale %.17g\nlower_bound %.17g\nL %lld\n", c->model,
            c->gate, c->beta_form, c->act, c->layout, c->l2norm, c->reuse_M, c->shift,
            c->scale, c->lower_bound, (long long)x->k->L);
}

/* Prints the form of the exchange and the boundaries of ranks. */
static void print_options(FILE *f, const struct described *x)
{
    const struct kcp_plan *p = x->plan;
    fprintf(f, "--form %s --cuts ", kcp_form_names[x->call->form]);
    for (int r = 0; r <= p->R; r++)
        fprintf(f, "%s%lld", r ? "," : "", (long long)p->cuts[r]);
    fprintf(f, "\n");
}

static void print_words(FILE *f, const struct described *x)
{
    char words[1024];
    case_print(x->k, words, sizeof words);
    fprintf(f, "%s\n", words);
}

static void print_head(FILE *f, const struct described *x)
{
    fprintf(f, "stage %s\nstorage %s\ncases %d\n", x->stage->name,
            storage_name[x->storage], x->n);
}

static int emit_pass(const char *dir, const struct kcp_stage *s, const struct kcase *k,
                     int i, int pass, enum kcp_storage storage)
{
    struct kcp_plan *p = case_plan(k, s->ranks ? k->call.R : 1);
    const struct expected *x = p ? expected_of(s, k, pass, storage, p) : NULL;
    char path[4096], file[32];
    int status = x ? 0 : 2;
    emit_path(path, sizeof path, dir, i, pass, "");
    if (!status) status = make_dir(path);
    struct kcp_call c = p ? call_of(s, k, p, 0, pass) : k->call;
    if (s->ranks) c.T = k->call.T;                 /* the whole batch, uncut */
    const struct described all = { .stage = s, .k = k, .call = &c, .plan = p };
    emit_path(path, sizeof path, dir, i, pass, "case.txt");
    if (!status) status = write_text(path, print_sizes, &all);
    emit_path(path, sizeof path, dir, i, pass, "options.txt");
    if (!status && s->ranks) status = write_text(path, print_options, &all);
    for (int j = 0; j < s->nfields && !status; j++) {
        const struct kcp_field *f = &s->fields[j];
        const struct tensor *t = tensor_find(&x->in, f->name);
        if (!field_in(f) || !field_used(f, &c) || !t) continue;
        snprintf(file, sizeof file, "%s.npy", field_file(f));
        emit_path(path, sizeof path, dir, i, pass, file);
        status = write_field(path, f, &c, t, storage);
    }
    if (!status && s->ranks) {
        emit_path(path, sizeof path, dir, i, pass, "cu_seqlens.npy");
        struct tensor t = { .nd = 1, .dim = { k->call.N + 1 }, .n = k->call.N + 1,
                            .store = KCP_I64, .p = (void *)k->cu };
        status = write_field(path, NULL, &c, &t, storage);
    }
    kcp_plan_free(p);
    return status;
}

/* Returns 1 if `shapes` is NULL or lists K and V of case k, e.g. in "128x128,64x64". */
static int of_shapes(const struct kcase *k, const char *shapes)
{
    char own[32];
    snprintf(own, sizeof own, "%dx%d", k->call.K, k->call.V);
    const size_t n = strlen(own);
    for (const char *s = shapes; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (!strncmp(s, own, n) && (!s[n] || s[n] == ',')) return 1;
    return !shapes;
}

static struct kcase *cases_in_words(const struct options *o, int *n)
{
    struct kcase *list = calloc((size_t)o->ngiven + 1, sizeof *list);
    for (int i = 0; list && i < o->ngiven; i++) {
        list[i] = o->given[i];
        list[i].spread = KCP_CONTIGUOUS;                   /* one range per rank */
        if (!list[i].seed) list[i].seed = o->seed * 1000003u + (unsigned)i;
    }
    *n = list ? o->ngiven : 0;
    return list;
}

/* Returns a list of the *n cases that the options select. */
static struct kcase *emit_list(const struct kcp_stage *s, const struct options *o,
                               int *n)
{
    if (o->ngiven) return cases_in_words(o, n);
    const struct kcp_variant any = { s->name, "v1", "", KCP_BF16, KCP_DEVICE, "any",
                                     NULL, NULL };
    struct kcase *list = o->small ? cases_make(s, o->full, 0, o->seed, o->ranks, n)
                                  : cases_of(s, &any, o, NULL, n);
    int kept = 0;
    for (int i = 0; i < *n; i++) list[i].spread = KCP_CONTIGUOUS;
    for (int i = 0; i < *n; i++)
        if (of_shapes(&list[i], o->shapes)) list[kept++] = list[i];
    *n = kept;
    return list;
}

int emit_cases(const char *dir, const struct options *o)
{
    const struct kcp_stage *s = o->stage ? stage_find(o->stage) : NULL;
    if (!s) {
        fprintf(stderr, "kcp-check: --emit needs --stage NN, with NN from 01 to 05 or "
                "07 to 17\n");
        return 2;
    }
    int n = 0;
    struct kcase *list = emit_list(s, o, &n);
    if (!n) {
        fprintf(stderr, "kcp-check: --shapes %s: no case has these sizes%s\n",
                o->shapes ? o->shapes : "none", o->small ? "; omit --small" : "");
        free(list);
        return 2;
    }
    char path[4096], head[4096];
    int status = make_dir(dir);
    const struct described all = { .stage = s, .storage = o->storage, .n = n };
    snprintf(head, sizeof head, "%s/cases.txt", dir);
    if (!status && !access(head, F_OK)) {        /* dir has cases, perhaps outputs */
        fprintf(stderr, "kcp-check: %s exists; choose a directory without cases\n",
                head);
        free(list);
        return 2;
    }
    for (int i = 0; i < n && !status; i++) {
        const struct described one = { .k = &list[i] };
        snprintf(path, sizeof path, "%s/case_%03d", dir, i);
        status = make_dir(path);
        snprintf(path, sizeof path, "%s/case_%03d/words.txt", dir, i);
        if (!status) status = write_text(path, print_words, &one);
        for (int pass = 0; pass <= has_backward(s) && !status; pass++)
            status = emit_pass(dir, s, &list[i], i, pass, o->storage);
    }
    if (!status) status = write_text(head, print_head, &all);
    if (!status)
        printf("wrote %d cases of %s in %s, inputs rounded to %s\n", n, s->name, dir,
               storage_name[o->storage]);
    free(list);
    return status;
}
