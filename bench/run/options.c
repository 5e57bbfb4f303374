/* options.c -- the command line of kcp-run, strictly.
 *
 * Book: chapters 08, 13, 14.  Checked by: tests/cli/run_cli.sh.  Next: help.c.
 * One table: what an option is called, takes and expects. Nothing is guessed.
 */
#include "run.h"
#include "base/options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct option_row rows[] = {
#define AT(field) offsetof(struct options, field)
    { "--in", OPTION_TEXT, AT(in), "a directory", 0, 0 },
    { "--out", OPTION_TEXT, AT(out), "a directory", 0, 0 },
    { "--model", OPTION_WORD, AT(model), "kda|gdn|dplr|gdn2|gla|spike", 0, 0 },
    { "--ranks", OPTION_WHOLE, AT(ranks), NULL, 1, MOST_RANKS },
    { "--cuts", OPTION_TEXT, AT(cuts), "R+1 whole numbers from 0 to T, with commas",
      0, 0 },
    { "--layout", OPTION_WORD, AT(spread), "contiguous|zigzag|striped", 0, 0 },
    { "--stripe", OPTION_WHOLE, AT(stripe), NULL, 1, 1e15 },
    { "--owners", OPTION_TEXT, AT(owners), "a file [B,2]: first token, rank", 0, 0 },
    { "--form", OPTION_WORD, AT(form), "all_gather|chain|pipeline|scan", 0, 0 },
    { "--blocks", OPTION_INT, AT(blocks), NULL, 1, MOST_SIZE },
    { "--wire", OPTION_WORD, AT(wire), "exact|bf16", 0, 0 },
    { "--truncate", OPTION_REAL, AT(truncate), "a number from 0 to below 1", 0, 1 },
    { "--canonical", OPTION_WHOLE, AT(canonical), NULL, 1, 1e15 },
    { "--gate", OPTION_WORD, AT(gate), "raw|softplus|bounded", 0, 0 },
    { "--lower-bound", OPTION_REAL, AT(lower_bound), "a number from -5 to below 0",
      -5, 0 },
    { "--l2norm", OPTION_FLAG, AT(l2norm), NULL, 0, 0 },
    { "--beta", OPTION_WORD, AT(beta), "raw|sigmoid|sigmoid2", 0, 0 },
    { "--scale", OPTION_REAL, AT(scale), "a finite number", -HUGE_VAL, HUGE_VAL },
    { "--chunk", OPTION_INT, AT(chunk), NULL, 1, MOST_CHUNK },
    { "--save", OPTION_WORD, AT(save), "recompute|all|light", 0, 0 },
    { "--sum", OPTION_WORD, AT(sum), "all|local", 0, 0 },
    { "--reuse-m", OPTION_FLAG, AT(reuse_M), NULL, 0, 0 },
    { "--state-layout", OPTION_WORD, AT(layout), "kv|vk", 0, 0 },
    { "--device", OPTION_WORD, AT(device), "cpu|gpu", 0, 0 },
    { "--dtype", OPTION_WORD, AT(dtype), "bf16|f32", 0, 0 },
    { "--variant", OPTION_TEXT, AT(variant), "a name that kcp-check --list prints",
      0, 0 },
    { "--conv", OPTION_TEXT, AT(conv), "three files, of q, k and v, with commas",
      0, 0 },
    { "--act", OPTION_WORD, AT(act), "none|silu", 0, 0 },
    { "--stage", OPTION_TEXT, AT(stage), "a stage, NN or NN_name", 0, 0 },
    { "--shift", OPTION_FLAG, AT(shift), NULL, 0, 0 },
    { "--backward", OPTION_FLAG, AT(backward), NULL, 0, 0 },
#undef AT
};

int run_error(struct run *x, int code, const char *what, const char *format, ...)
{
    char said[sizeof x->why];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    x->exit = code;
    return npy_error(x->why, sizeof x->why, what, "%s", said);
}

/* 0; 1: help or the version was printed; -1 with run_error said. */
int run_options(struct run *x, int argc, char **argv)
{
    static const struct option_table table = {
        .program = "kcp-run", .row = rows, .n = sizeof rows / sizeof *rows, .once = 1,
        .help = options_help,
    };
    x->o = (struct options){ .lower_bound = NAN, .scale = NAN, .dtype = -1 };
    const int status = options_read(&table, argc, argv, &x->o, x->why, sizeof x->why);
    if (status == OPTIONS_DONE)
        return 1;
    x->exit = status == OPTIONS_BAD ? RUN_BAD : RUN_OK;
    if (status == OPTIONS_BAD)
        return -1;
    if (!x->o.in || !x->o.out)
        return run_error(x, RUN_BAD, x->o.in ? "--out" : "--in",
                         "found none, expected a directory");
    return 0;
}
