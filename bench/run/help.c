/* help.c -- kcp-run --help: every option, file and shape.
 *
 * Book: chapter 00.  Checked by: tests/cli/run_cli.sh.  Next: shape.c.
 */
#include "run.h"

#include <string.h>

static const char usage[] =
"usage: kcp-run --in DIR --out DIR [--model M] [--ranks R] [--cuts a,b,..]\n"
"       [--layout contiguous|zigzag|striped [--stripe n]] [--owners FILE]\n"
"       [--form all_gather|chain|pipeline|scan] [--blocks B] [--canonical L]\n"
"       [--wire exact|bf16] [--truncate x]\n"
"       [--gate raw|softplus|bounded] [--lower-bound x] [--l2norm]\n"
"       [--beta raw|sigmoid|sigmoid2] [--scale s] [--chunk C]\n"
"       [--save recompute|all|light] [--reuse-m] [--sum all|local]\n"
"       [--state-layout kv|vk]\n"
"       [--device cpu|gpu [--dtype bf16|f32] [--variant NAME]]\n"
"       [--conv w_q.npy,w_k.npy,w_v.npy] [--act none|silu]\n"
"       [--stage NN [--backward] [--shift]]\n"
"       kcp-run --help | --version\n";

static const char files[] =
"\n"
"Runs the KDA or GDN layer, or a relative, over R ranks, in double or on GPUs, on\n"
"arrays in .npy files (C or Fortran order, little-endian; float64, float32 or\n"
"float16; whole numbers int64 or int32).\n"
"\n"
"read from --in           T tokens, N sequences, H query/key heads, HV value heads (a\n"
"                         multiple of H), K and V the key and value size of a head\n"
"  q k [T,H,K]   v [T,HV,V]   beta [T,HV]\n"
"  g [T,HV,K] for kda, [T,HV] for gdn\n"
"  cu_seqlens [N+1]       where sequences begin, from 0 to T; absent: one sequence\n"
"  A_log [HV]             optional, as 0 if absent; not used by --gate raw\n"
"  dt_bias [HV,K] or [HV] as g; optional, as 0 if absent; not used by --gate raw\n"
"  h0 [N,HV,K,V]          optional, as 0 if absent; [N,HV,V,K] with --state-layout vk\n"
"  do [T,HV,V]            if it is there, backward runs too\n"
"  dht                    as h0; optional, as 0 if absent\n"
"  x0_q x0_k x0_v         with --conv: the W-1 rows before each sequence, [N,W-1,D],\n"
"                         and dxt_q dxt_k dxt_v; optional, as 0 if absent\n"
"written to --out, which is made if its parent is there (it may be --in); float64\n"
"  o [T,HV,V]   ht as h0\n"
"  dq dk dv dg dbeta dh0  with do; shapes of q k v g beta h0\n"
"  dA_log ddt_bias        with do, if A_log, dt_bias are there; summed over the ranks\n"
"  xt_q xt_k xt_v         with --conv: the last W-1 rows; the next call's x0_q ..\n"
"  dw_q dw_k dw_v         with do and --conv; summed over the ranks\n"
"  dx0_q dx0_k dx0_v      with do and x0_q, x0_k, x0_v\n";

static const char options[] =
"\n"
"  --model kda|gdn        a gate per channel, or per head                       [kda]\n"
"    dplr|gdn2|gla|spike  a relative: files of stage 16, of spike's stage 15, whose\n"
"                         names and shapes stand below; do as above. a b for dplr, b\n"
"                         omega for gdn2. No --gate --beta --l2norm --save --reuse-m\n"
"                         --conv\n"
"  --ranks R              threads, each with its shard; 1 to 1024, and there may be\n"
"                         more than tokens                    [1, or as --cuts says]\n"
"                         under srun, mpirun or torchrun its processes are the ranks\n"
"  --cuts a,b,..          R+1 boundaries from 0 to T, not decreasing [floor(r T / R)]\n"
"  --layout l             who owns what instead: contiguous, or of each sequence\n"
"                         zigzag: 2R ranges, r and 2R-1-r are rank r's\n"
"                         striped: stripes, the i-th is rank i mod R's [contiguous]\n"
"  --stripe n             tokens of a stripe                                 [chunk]\n"
"  --owners FILE          any owners: [B,2] of whole numbers, a range's first token\n"
"                         and its rank; R as many as it names, or as --ranks says\n"
"  --form f               how states cross cuts                         [all_gather]\n"
"  --blocks B             of V, for pipeline; at most V                  [it chooses]\n"
"  --wire bf16            what crosses cuts is rounded once a message. The layer's,\n"
"                         not with --canonical                                [exact]\n"
"  --truncate x           a rank does not wait for what enters where gates and keys\n"
"                         show that at most x of it, from 0 to below 1, leaves; else\n"
"                         it is exact. The layer's, chain or pipeline, one range a\n"
"                         rank, not with --canonical                              [0]\n"
"  --canonical L          cut segments every L tokens of a sequence: the same bits\n"
"                         for every R (not in scan). Cuts inside one move down to\n"
"                         its beginning                                     [classic]\n"
"  --gate f               g is a log decay <= 0 itself, or goes through\n"
"                         softplus: -exp(A_log) softplus(g + dt_bias)\n"
"                         bounded:  lb sigmoid(exp(A_log) (g + dt_bias))        [raw]\n"
"  --lower-bound lb       -5 <= lb < 0                                           [-5]\n"
"  --l2norm               q and k are normalised first (after --conv)            [no]\n"
"  --beta f               as given, sigmoid, or 2 sigmoid                       [raw]\n"
"  --scale s              of q                                               [K^-1/2]\n"
"  --chunk C              tokens of a chunk, 1 to 256                            [64]\n"
"  --save mode            what forward leaves for backward: recompute, all (more),\n"
"                         light (less); same results                      [recompute]\n"
"  --reuse-m              backward reuses forward's M, and only dh travels       [no]\n"
"  --sum all|local        of the gradients of parameters: over all ranks, or each\n"
"                         rank's own, [R,..], row r what rank r alone has    [all]\n"
"  --state-layout kv|vk   of h0 ht dht dh0: [N,HV,K,V] or [N,HV,V,K]             [kv]\n"
"  --device cpu|gpu       gpu: the kernels; a GPU a rank where there are as many,\n"
"                         else ranks share one                                  [cpu]\n"
"  --dtype bf16|f32       on the GPU: of q k v g beta o and their gradients    [bf16]\n"
"  --variant NAME         on the GPU: of forward and backward, or --stage's [by call]\n"
"  --conv a,b,c           causal convolutions of q, k, v before the layer; files in\n"
"                         --in, or paths; [H K,W], [H K,W], [HV V,W], W each its own\n"
"  --act none|silu        after the convolution                                [none]\n"
"\n"
"  --stage NN             instead: one stage (NN or NN_name) on the\n"
"                         arrays of its table, <field>.npy each, shapes as there.\n"
"                         Both passes if the backward's inputs are there; backward\n"
"                         alone with --backward (07: folds backward). Without cu cn\n"
"                         sc one rank holds all of cu_seqlens. What a reference\n"
"                         leaves untouched is NaN. 08, 13, 14 run over --ranks; 14 is\n"
"                         the token shift with --shift.\n";

void options_usage(FILE *to)
{
    fputs(usage, to);
    fputs("       kcp-run --help says the rest\n", to);
}

void options_help(void)
{
    fputs(usage, stdout);
    fputs(files, stdout);
    fputs(options, stdout);
    printf("\nstages, inputs -> outputs\n");
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        for (int out = 0; out < 2; out++) {
            int at = printf("  %-20s", out ? "    ->" : s->name);
            for (int j = 0; j < s->nfields; j++) {
                const struct kcp_field *f = &s->fields[j];
                if (field_in(f) == out || (s->ranks && field_is_grid(f)))
                    continue;
                if (at > 72)
                    at = printf("\n%22s", "") - 1;
                at += printf(" %s[%s]", strcmp(f->name, "do_") ? f->name : "do",
                             f->shape);
            }
            printf("\n");
        }
    }
    printf("\nexit status: 0; 1 a rank failed or the result is not finite; 2 bad "
           "input. On 1 and 2\none line says what was found and what was expected, and "
           "nothing is written.\n");
}
