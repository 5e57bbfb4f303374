/* main.c -- kcp-run: runs the layer on arrays in files.
 * Book: chapters 08, 13, 14. */
#include "run.h"
#include "base/options.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Rejects an option that would have no effect. */
static int check_options(struct run *x)
{
    struct options *o = &x->o;
    const int given = !isnan(o->lower_bound);
    _Static_assert(!KCP_GATE_RAW && !KCP_BETA_RAW && !KCP_RECOMPUTE, "defaults are 0");
    const struct { int wrong; const char *option, *needs; } rows[] = {
        { o->variant && !o->device, "--variant", "--device gpu" },
        { o->dtype >= 0 && !o->device, "--dtype", "--device gpu" },
        { o->g_type && !o->device, "--g-type", "--device gpu" },
        { o->beta_type && !o->device, "--beta-type", "--device gpu" },
        { o->act && !o->conv, "--act", "--conv" },
        { given && o->gate != KCP_GATE_BOUNDED, "--lower-bound", "--gate bounded" },
        { o->blocks && o->form != KCP_PIPELINE, "--blocks", "--form pipeline" },
        { o->stripe && o->spread != KCP_STRIPED, "--stripe", "--layout striped" },
        { o->cuts && o->spread, "--cuts", "a run without --layout" },
    };
    o->lower_bound = given ? o->lower_bound : -5;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].wrong)
            return run_error(x, RUN_BAD, rows[i].option, "needs %s", rows[i].needs);
    return 0;
}

static int run_all(struct run *x, int argc, char **argv)
{
    char why[300];
    if (kcp_mpi_start(&x->mpi, why, sizeof why))
        return run_error(x, RUN_BAD, "launcher", "%s", why);
    const int read = run_options(x, argc, argv);
    if (read != 0) return read > 0 ? 0 : -1;
    if (processes_check(x) != 0 || check_options(x) != 0) return -1;
    if (device_open(x) != 0) return -1;
    const double start = seconds_now();
    x->size.model = x->o.model;
    x->size.KG = kcp_models[x->o.model].gates == KCP_HEAD ? 1 : -1;
    const int writes = x->mpi.r == 0;
    if ((writes && outputs_ready(x) != 0) || names_check(x) != 0) return -1;
    if (layer_run(x) != 0) return -1;
    if (!writes) return 0;
    if (outputs_write(x) != 0) return -1;
    print_summary(x, seconds_now() - start);
    return 0;
}

static int kcp_run(int argc, char **argv)
{
    static struct run x;
    signal(SIGXFSZ, SIG_IGN);          /* then write() fails at the file size limit */
    x.size = (struct kcp_call){ .T = -1, .N = -1, .NS = -1, .NC = -1, .R = -1, .H = -1,
        .HV = -1, .K = -1, .V = -1, .C = -1, .D = -1, .Wc = -1 };
    if (run_all(&x, argc, argv) != 0) {
        char rank[24] = "";
        struct kcp_comm *world;
        if (x.mpi.R > 1 && !x.has_met) processes_meet(&x, &world);
        if (x.mpi.R > 1) snprintf(rank, sizeof rank, "rank %d: ", x.mpi.r);
        if (!x.is_silent)
            fprintf(stderr, "kcp-run: %s%s\n", rank, x.why);
    }
    tensor_set_free(&x.a);
    kcp_plan_free(x.plan);
    free(x.report);
    return x.exit;
}

int main(int argc, char **argv)
{
    print_notices();
    return kcp_mpi_end(finish_stdout("kcp-run", kcp_run(argc, argv)));
}
