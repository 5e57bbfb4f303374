/* main.c -- kcp-run: the layer, or one stage of it, on arrays in files.
 *
 * Book: chapters 08, 13, 14.  Checked by: tests/cli/run_cli.sh.  Next: run.h.
 */
#include "run.h"
#include "base/program.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --device, --dtype and --variant: whose code runs. */
static int device_read(struct run *x, const struct kcp_stage *stage)
{
    const char *what, *extra = x->o.variant ? "--variant" : "--dtype";
    char why[400];
    if (!x->o.device)
        return x->o.variant || x->o.dtype >= 0
            ? run_error(x, RUN_BAD, extra, "found without --device gpu, expected with "
                        "it") : 0;
    x->gpu = device_open(x->o.dtype == 1 ? KCP_F32 : KCP_BF16, x->o.variant, stage,
                         &what, why, sizeof why);
    return x->gpu ? 0 : run_error(x, RUN_BAD, what, "%s", why);
}

/* An option that would change nothing is a mistake; of a stage's, emit says all. */
static int without(struct run *x)
{
    struct options *o = &x->o;
    const int number = o->stage ? atoi(o->stage) : 13;
    const int layer = !o->stage || x->relative, bounded = o->gate == KCP_GATE_BOUNDED;
    const struct { int wrong; const char *option, *with; } pairs[] = {
        { layer && o->shift, "--shift", "--stage" },
        { layer && o->backward, "--backward", "--stage" },
        { layer && o->act && !o->conv, "--act", "--conv" },
        { layer && !isnan(o->lower_bound) && !bounded, "--lower-bound",
          "--gate bounded" },
        { o->sum && (number < 13 || number > 15), "--sum",
          "kda, gdn or spike, or --stage 13, 14 or 15" },
        { o->stage && o->wire, "--wire", "the layer of kda or gdn" },
        { o->stage && o->truncate > 0, "--truncate", "the layer of kda or gdn" },
        { o->canonical && o->wire, "--wire", "classic segments, no --canonical" },
        { o->truncate > 0 && (o->canonical || o->spread || o->owners), "--truncate",
          "one range a rank of classic segments" },
        { o->truncate > 0 && o->form != KCP_CHAIN && o->form != KCP_PIPELINE,
          "--truncate", "--form chain or pipeline" },
        { o->blocks && o->form != KCP_PIPELINE, "--blocks", "--form pipeline" },
    };
    if (isnan(o->lower_bound))
        o->lower_bound = -5;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].wrong)
            return run_error(x, RUN_BAD, pairs[i].option, "found without %s, expected "
                             "with it", pairs[i].with);
    return 0;
}

static int answer(struct run *x, int argc, char **argv)
{
    const int read = run_options(x, argc, argv);
    if (read != 0)
        return read > 0 ? 0 : -1;
    if (processes_open(x) != 0 || relative_read(x) != 0 || without(x) != 0)
        return -1;
    const struct kcp_stage *stage = x->o.stage ? stage_of(x->o.stage) : NULL;
    const int family = stage && !strncmp(stage->name, "16", 2);
    if ((x->o.model >= KCP_DPLR) != family)
        return run_error(x, RUN_BAD, "--model", "found %s with --stage %.40s, expected "
                         "dplr, gdn2 or gla with 16, kda or gdn with others",
                         family ? "kda or gdn" : "dplr, gdn2 or gla", x->o.stage);
    if (device_read(x, stage) != 0)
        return -1;
    const double start = now();
    x->size.gdn = x->o.model == KCP_GDN;
    const int writes = x->who.r == 0;
    if ((writes && outputs_ready(x) != 0) || names_check(x) != 0)
        return -1;
    if ((x->o.stage ? stage_run(x) : layer_run(x)) != 0)
        return -1;
    if (!writes)
        return 0;
    if (outputs_write(x) != 0)
        return -1;
    print_summary(x, now() - start);
    return 0;
}

static int do_all(int argc, char **argv)
{
    static struct run x = { .folder = { .parent = -1, .old = -1, .new = -1 } };
    signal(SIGXFSZ, SIG_IGN);          /* a limit on files is an error to report */
    for (int i = 0; i < LETTERS; i++)
        x.size.of[i] = -1;
    if (argc < 2) {
        options_usage(stderr);
        return RUN_BAD;
    }
    if (answer(&x, argc, argv) != 0) {
        char rank[24] = "";
        if (x.who.R > 1)
            snprintf(rank, sizeof rank, "rank %d: ", x.who.r);
        fprintf(stderr, "kcp-run: %s%s\n", rank, x.why);
    }
    tensor_set_free(&x.a);
    kcp_plan_free(x.plan);
    free(x.told);
    device_close(x.gpu);
    folder_close(&x.folder);
    return x.exit;
}

int main(int argc, char **argv)
{
    print_notices();
    return finish_stdout("kcp-run", do_all(argc, argv));
}
