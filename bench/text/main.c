/* main.c -- make run: runs a KDA layer on real text on R ranks, and compares the
 * results with one rank and with the token recurrence. With --steps, also trains.
 * Book: chapters 08 and 13. */
#include "text.h"
#include "base/options.h"
#include "tests/judge/tolerance.h"
#include <stdlib.h>
#include <string.h>

enum { SEED = 2026, MOST_BYTES = 3072, MOST_STEPS = 10000 };
/* Learning rate of gradient descent. After 100 steps the losses on four ranks and on
 * one rank differ by 1e-14. With rate 1 the losses would differ by 4.6e-4, because they
 * oscillate and thus amplify rounding errors. */
#define RATE 0.25

struct options { int ranks, steps; const char *text; };

static const struct option_row rows[] = {
    { "--ranks", OPTION_INT, offsetof(struct options, ranks), NULL, 1, MAX_RANKS, "R",
      "threads, 1 to 64 [4]" },
    { "--text", OPTION_TEXT, offsetof(struct options, text), "names of files", 0, 0,
      "'FILE ..'", "text files, one sequence each [README.md and the book]" },
    { "--steps", OPTION_INT, offsetof(struct options, steps), NULL, 0, MOST_STEPS, "N",
      "training steps, on R ranks and on one rank [0]" },
};

static void print_usage(const struct option_table *t)
{
    puts("usage: kcp-text [options]\n       kcp-text --help | --version\n");
    options_print(t);
}

static const struct option_table table = {
    .program = "kcp-text", .row = rows, .n = sizeof rows / sizeof *rows,
    .help = print_usage,
};

static int report(const struct run *run, int status)
{
    if (status)
        fprintf(stderr, "kcp-text: %s\n", *run->why ? run->why : "out of memory");
    return status;
}

/* Runs the step with each exchange algorithm (form). Keeps form 0's run in *many. */
static int run_forms(struct finding *f, struct run *many, const struct run *one,
                     const double *theta)
{
    for (int form = KCP_FORMS - 1; form >= 0; form--) {
        struct run other, *run = form ? &other : many;
        int status = run_open(run, f->text, f->R, form);
        run->keep_maps = form == 0;
        if (!status) status = run_step(run, theta);
        if (status) return report(run, status);
        for (int r = 0; r < f->R; r++) {
            traffic_add(&f->form[form], run->lane[r].wire);
            traffic_add(&f->formula[form], run->lane[r].formula);
        }
        f->form_err[form] = compare_runs(run, one, NULL);
        f->counted &= !memcmp(&f->form[form], &f->formula[form], sizeof f->form[form])
                      && (f->form[form].bytes > 0) == (run->plan->crossing > 0);
        if (form) run_close(run);
    }
    return 0;
}

/* Trains the embedding and the projections: theta <- theta - RATE dloss/dtheta. */
static int train(struct finding *f, int which, const double *theta0)
{
    struct run run;
    const int64_t n = param_at(PARAMS), trained = param_at(P_CQ);
    double *theta = malloc(sizeof *theta * n), *loss = f->loss[which];
    int status = theta && loss ? KCP_OK : KCP_NO_MEMORY;
    if (!status) status = run_open(&run, f->text, which ? 1 : f->R, KCP_ALL_GATHER);
    if (status) {
        free(theta);
        fprintf(stderr, "kcp-text: out of memory\n");
        return status;
    }
    memcpy(theta, theta0, sizeof *theta * n);
    const double from = seconds_now();
    for (int i = 0; i <= f->steps && !status; i++) {
        status = run_step(&run, theta);
        loss[i] = run.loss;
        for (int64_t j = 0; j < trained && !status; j++)
            theta[j] -= RATE * run.grad[j];
    }
    f->ms[which] = (seconds_now() - from) * 1e3 / (f->steps + 1);
    status = report(&run, status);
    run_close(&run);
    free(theta);
    return status;
}

static int run_all(struct finding *f, struct run *many, struct run *one,
                   struct run *step)
{
    double *theta = params_make(SEED);
    int status = theta ? KCP_OK : KCP_NO_MEMORY;
    if (!status) status = run_open(one, f->text, 1, KCP_ALL_GATHER);
    if (!status) status = run_step(one, theta);
    if (!status) status = run_open(step, f->text, 1, KCP_ALL_GATHER);
    step->oracle = 1;
    if (!status) status = run_step(step, theta);
    if (status) return report(*step->why ? step : one, status);
    status = run_forms(f, many, one, theta);
    if (status) return status;
    f->worst_one = compare_runs(many, one, f->error_one);
    f->worst_step = compare_runs(many, step, f->error_step);
    measure_alive(f);
    print_report(stdout, f);
    fflush(stdout);
    for (int which = 0; which < 2 && f->steps && !status; which++) {
        f->loss[which] = malloc(sizeof(double) * (f->steps + 1));
        status = train(f, which, theta);
    }
    free(theta);
    if (status) return status;
    f->pass = f->counted && f->worst_one <= f->limit && f->worst_step <= f->limit;
    for (int i = 0; i < KCP_FORMS; i++) f->pass &= f->form_err[i] <= f->limit;
    print_training(stdout, f);
    return 0;
}

static int kcp_text(int argc, char **argv)
{
    struct options o = { .ranks = 4 };
    static struct text text;
    static struct run many, one, step;
    struct finding f = { .text = &text, .many = &many, .one = &one, .step = &step };
    char why[300];
    const int read = options_read(&table, argc, argv, &o, why, sizeof why);
    if (read == OPTIONS_DONE) return 0;
    if (read == OPTIONS_BAD) return options_say("kcp-text", why);
    const int status = text_read(&text, o.text, MOST_BYTES);
    if (status) return status;
    f.R = o.ranks;
    f.steps = o.steps;
    f.limit = tolerance_of(TOLERANCE_GRADIENTS, KCP_F64);
    f.counted = 1;
    if (run_all(&f, &many, &one, &step)) return 1;
    char line[400];
    close_line(&f, line, sizeof line);
    printf("\n%s\n", line);
    run_close(&many);
    run_close(&one);
    run_close(&step);
    free(f.loss[0]);
    free(f.loss[1]);
    free(f.alive);
    free(text.byte);
    return f.pass ? 0 : 1;
}

int main(int argc, char **argv)
{
    print_notices();
    trace_exchanges();
    return finish_stdout("kcp-text", kcp_text(argc, argv));
}
