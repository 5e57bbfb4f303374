/* main.c -- kcp-check: the judge from the command line, one stage or all.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli.sh.  Next: criterion.c.
 */
#include "judge.h"
#include "emit.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-check [--stage NN] [--variant NAME|./mine.so] [--ranks R] [--seed S]\n"
    "                 [--full] [--quiet] [--strict] [--device] [--list]\n"
    "                 [--backend threads|nccl] [--case TEXT] [--reference ./its.so]\n"
    "       kcp-check --emit DIR --stage NN [--storage f64|f32|bf16]\n"
    "                                            write the judge's cases as .npy\n"
    "       kcp-check --foreign DIR              judge outputs computed elsewhere\n"
    "       kcp-check --exchange N [--device]    N random exchanges, every form; 0: no end\n"
    "  --case 'live kda H=1 HV=3 K=5 V=7 C=64 lengths=150,0,70 R=4 chain h0' is one case\n"
    "  alone, in the words that a failure prints; --reference: what --stage is held to\n"
    "  --ranks R are threads, which share a GPU; with --device --backend nccl a GPU each;\n"
    "  under mpirun, torchrun or srun they are its processes, with --device a GPU each\n"
    "exit status: 0 all right, 1 something failed, 2 usage, 3 skips under --strict\n";

static int bad(const char *option, const char *found, const char *expected)
{
    fprintf(stderr, "kcp-check: %s: found '%s', expected %s\n", option, found ? found : "",
            expected);
    return 2;
}

static int number(const char *s, long long low, long long high, long long *out)
{
    char *end;
    errno = 0;
    *out = s ? strtoll(s, &end, 10) : 0;
    return s && *s && !*end && !errno && *out >= low && *out <= high;
}

static int list(const struct options *o)
{
    const struct kcp_variant *v[1024];
    const int n = kcp_variants(o->stage, o->variant, v, 1024);
    for (int i = 0; i < n; i++)
        printf("%-20s %-28s %s\n", v[i]->stage, v[i]->name, v[i]->why);
    return 0;
}

/* What the stage is held to instead of its own reference: a function that has one. */
static int other_reference(const char *path, struct options *o)
{
    char why[256] = "";
    o->reference = variant_load(path, why, sizeof why);
    if (!o->reference) return bad("--reference", path, why);
    const struct kcp_stage *s = stage_find(o->reference->stage);
    if (!s || s->ranks || !o->stage || s != stage_find(o->stage))
        return bad("--reference", o->reference->stage, "--stage, one without ranks");
    return 0;
}

static int judge_object(const char *path, struct options *o, struct kcp_report *rep)
{
    char why[256] = "";
    const struct kcp_variant *v = variant_load(path, why, sizeof why);
    if (!v) return bad("--variant", path, why);
    const struct kcp_stage *s = stage_find(v->stage);
    if (!s) return bad("--variant", v->stage, "a variant of a known stage");
    printf("%s\n", s->name);
    judge_variant(s, v, o, rep);
    return report_close(rep, o->strict);
}

int main(int argc, char **argv)
{
    struct options o = { .seed = 1 };
    struct kcp_report rep = { 0 };
    struct kcase alone;
    const char *emit = NULL, *foreign = NULL, *backend = NULL, *reference = NULL;
    char why[300];
    int listing = 0, exchange = -1;
    long long x;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = argv[i + 1];
        if (!strcmp(a, "--full")) o.full = 1;
        else if (!strcmp(a, "--quiet")) o.quiet = rep.quiet = 1;
        else if (!strcmp(a, "--strict")) o.strict = 1;
        else if (!strcmp(a, "--device")) o.only_device = 1;
        else if (!strcmp(a, "--list")) listing = 1;
        else if (!strcmp(a, "--help")) return fputs(usage, stdout), 0;
        else if (!strcmp(a, "--stage") && next) o.stage = argv[++i];
        else if (!strcmp(a, "--variant") && next) o.variant = argv[++i];
        else if (!strcmp(a, "--emit") && next) emit = argv[++i];
        else if (!strcmp(a, "--foreign") && next) foreign = argv[++i];
        else if (!strcmp(a, "--reference") && next) reference = argv[++i];
        else if (!strcmp(a, "--case") && next) {
            if (case_parse(argv[++i], &alone, why, sizeof why))
                return bad(a, why, "words as a failure prints them");
            o.alone = &alone;
        }
        else if (!strcmp(a, "--backend")) {
            if (!next || (strcmp(next, "nccl") && strcmp(next, "threads")))
                return bad(a, next, "threads or nccl");
            backend = argv[++i];
        } else if (!strcmp(a, "--exchange")) {
            if (!number(next, 0, 1000000, &x)) return bad(a, next, "a number of plans");
            exchange = (int)x, i++;
        } else if (!strcmp(a, "--storage")) {
            if (next && !strcmp(next, "f64")) o.storage = KCP_F64;
            else if (next && !strcmp(next, "f32")) o.storage = KCP_F32;
            else if (next && !strcmp(next, "bf16")) o.storage = KCP_BF16;
            else return bad(a, next, "f64, f32 or bf16");
            i++;
        } else if (!strcmp(a, "--ranks")) {
            if (!number(next, 1, 8, &x)) return bad(a, next, "a number of ranks, 1 to 8");
            o.ranks = (int)x, i++;
        } else if (!strcmp(a, "--seed")) {
            if (!number(next, 0, 1000000000000, &x)) return bad(a, next, "a seed >= 0");
            o.seed = (uint64_t)x, i++;
        } else return bad("option", a, "one of --help");
    }
    const struct kcp_check *c;
    if (o.stage && !stage_find(o.stage) && !kcp_checks(o.stage, &c, 1))
        return bad("--stage", o.stage, "a stage, e.g. 05 or 05_affine");
    if (listing) return list(&o);
    if (emit) return emit_cases(emit, &o);
    if (foreign) return judge_foreign(foreign, &o, &rep);
    const struct kcp_variant *v;
    const int object = o.variant && strchr(o.variant, '/');
    if (o.variant && !object && strcmp(o.variant, "ref") && !kcp_variants(o.stage, o.variant, &v, 1))
        return bad("--variant", o.variant, "a name that --list prints, or ./mine.so");
    int status = reference ? other_reference(reference, &o) : 0;
    if (!status) status = ranks_open(backend, o.only_device, &o.ranks);
    if (status) return status;
    printf("seed %llu%s\n", (unsigned long long)o.seed, o.full ? ", full" : "");
    if (exchange >= 0) status = exchange_trials(exchange, o.ranks ? o.ranks : 3,
                                                o.only_device);
    else if (object) status = judge_object(o.variant, &o, &rep);
    else status = judge_all(&o, &rep);
    ranks_close();
    return status;
}
