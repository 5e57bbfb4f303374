/* options.c -- the command line of kcp-run and its --help, both from options.def.
 * Book: chapters 08, 13, 14. */
#include "run.h"
#include "base/options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The models of kind KCP_LAYER: "kda|gdn". */
#define WORD_KCP_LAYER(name) "|" name
#define WORD_KCP_FAMILY(name)
#define MODEL_WORD(NAME, name, title, kind, ...) WORD_##kind(#name)
#define MODEL_WORDS (KCP_MODEL_LIST(MODEL_WORD) + 1)
#define FORM_WORD(number, name) "|" #name
#define FORM_WORDS (KCP_FORM_LIST(FORM_WORD) + 1)          /* "all_gather|chain|.." */

#define KCP_OPTION(type, field, name, value, kind, expects, low, high, help)          \
    { name, OPTION_##kind, offsetof(struct options, field), expects, low, high, value, \
      help },
static const struct option_row rows[] = {
#include "options.def"
};
#undef KCP_OPTION

static const char files[] =
"usage: kcp-run --in DIR --out DIR [options]\n"
"       kcp-run --help | --version\n"
"\n"
"Runs the KDA or GDN layer on R ranks. CPUs compute in double.\n"
"Arrays are .npy files (C or Fortran order, little-endian; float64, float32 or\n"
"float16; whole numbers: int64 or int32).\n"
"\n"
"read from --in           T tokens, N sequences, H query/key heads, HV value heads;\n"
"                         HV is a multiple of H; K, V: key and value size of a head\n"
"  q k [T,H,K]   v [T,HV,V]   beta [T,HV]\n"
"  g [T,HV,K] (kda) or [T,HV] (gdn)\n"
"  cu_seqlens [N+1]       boundaries of sequences, 0 to T; absent: one sequence\n"
"  A_log [HV]             optional, 0 if absent; not used by --gate raw\n"
"  dt_bias [HV,K] (kda) or [HV] (gdn): like A_log\n"
"  h0 [N,HV,K,V]          optional, 0 if absent; [N,HV,V,K] with --state-layout vk\n"
"  do [T,HV,V]            optional; if present, backward runs too\n"
"  dht                    like h0\n"
"  x0_q x0_k x0_v         [N,W-1,D] optional with --conv: rows before each sequence\n"
"  dxt_q dxt_k dxt_v      like x0: gradients of xt; W is taps, D is H*K or HV*V\n"
"written to --out, float64\n"
"  o [T,HV,V]   ht [N,HV,K,V] (like h0)\n"
"  dq dk dv dg dbeta dh0  if do.npy exists, in the shapes of q k v g beta h0\n"
"  dA_log ddt_bias        if do.npy and the parameter exist; sums over ranks\n"
"  xt_q xt_k xt_v         with --conv: the last W-1 rows, to be x0 of the next call\n"
"  dw_q dw_k dw_v         if do.npy exists, with --conv; sums over ranks\n"
"  dx0_q dx0_k dx0_v      if do.npy exists: one per given x0_q, x0_k, x0_v\n";

int run_error(struct run *x, int code, const char *what, const char *format, ...)
{
    char text[sizeof x->why];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    x->exit = code;
    return npy_error(x->why, sizeof x->why, what, "%s", text);
}

static void print_help(const struct option_table *t)
{
    fputs(files, stdout);
    printf("\noptions\n");
    options_print(t);
    printf("\nexit status: 0: success; 1: a rank failed or a result is not finite; "
           "2: bad input\n"
           "If the status is not 0, one line says why, and nothing is written.\n");
}

/* Returns 1 after printing the help or the version, -1 after run_error, else 0. */
int run_options(struct run *x, int argc, char **argv)
{
    static const struct option_table table = {
        .program = "kcp-run", .row = rows, .n = sizeof rows / sizeof *rows,
        .help = print_help,
    };
    x->o = (struct options){ .lower_bound = NAN, .scale = NAN, .dtype = -1 };
    const int status = options_read(&table, argc, argv, &x->o, x->why, sizeof x->why);
    if (status == OPTIONS_DONE) return 1;
    x->exit = status == OPTIONS_BAD ? RUN_BAD : RUN_OK;
    if (status == OPTIONS_BAD) return -1;
    if (!x->o.in || !x->o.out)
        return run_error(x, RUN_BAD, x->o.in ? "--out" : "--in", "no folder was given");
    return 0;
}
