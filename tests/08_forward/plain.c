/* plain.c -- checks which calls are said to run a plain path, and the reason.
 * Book: chapter 08, "Paths". */
#include "core/paths.h"
#include "tests/judge/judge.h"

#include <string.h>

static int plain(struct kcp_report *rep)
{
    const struct kcp_device h200 = { 90, 132, 232448, 1, 0 };
    const struct kcp_device b200 = { 100, 148, 232448, 1, 0 };
    const struct {
        int K, V, C, g, q, saves;            /* q: KCP_AS_Q is bf16 */
        const struct kcp_device *d;
        const char *why;                     /* NULL: not plain */
    } is[] = {
        { 128, 128, 64, KCP_AS_Q, 0, 1, &h200, NULL },
        { 64, 64, 64, KCP_TYPE_BF16, 0, 1, &h200, NULL },
        { 128, 64, 64, KCP_AS_Q, 0, 0, &h200, NULL },
        { 128, 64, 64, KCP_AS_Q, 0, 1, &h200, NULL },
        { 128, 512, 64, KCP_TYPE_F32, 0, 1, &h200, NULL },
        { 128, 128, 64, KCP_TYPE_F32, 0, 1, &h200, NULL },
        { 128, 128, 64, KCP_TYPE_F16, 0, 1, &h200, NULL },
        { 128, 128, 64, KCP_TYPE_F64, 0, 0, &h200,
          "forward_plain: g is f64, expected bf16; beta is f64, expected bf16" },
        { 128, 128, 32, KCP_AS_Q, 0, 1, &h200, "forward_plain: C is 32, expected 64" },
        { 96, 96, 64, KCP_AS_Q, 0, 1, &h200, NULL },
        { 192, 128, 64, KCP_AS_Q, 0, 1, &h200,
          "forward_plain: K is 192, expected 128" },
        { 256, 128, 64, KCP_AS_Q, 0, 1, &h200, NULL },
        { 256, 512, 64, KCP_TYPE_F32, 0, 1, &h200, NULL },
        { 128, 128, 64, KCP_AS_Q, KCP_TYPE_F32, 1, &h200,
          "forward_stages_f32: q is f32, expected bf16" },
        { 128, 128, 64, KCP_TYPE_F32, KCP_TYPE_F16, 1, &h200, NULL },
        { 96, 192, 64, KCP_AS_Q, KCP_TYPE_F16, 1, &h200, NULL },
        { 128, 128, 64, KCP_AS_Q, KCP_TYPE_F16, 1, &b200,
          "no path: the GPU is sm_100, expected sm_90" },
        { 256, 128, 64, KCP_TYPE_F32, KCP_TYPE_F16, 1, &h200,
          "no path: K is 256, expected 128" },
        { 128, 128, 64, KCP_AS_Q, 0, 1, &b200,
          "forward_stages: the GPU is sm_100, expected sm_90" },
        { 300, 128, 64, KCP_AS_Q, 0, 0, &h200, "no path: K is 300, expected 128" } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        for (int model = KCP_KDA; model <= KCP_GDN; model++) {
            char why[300];
            struct kcp_call c = { .H = 2, .HV = 4, .K = is[i].K, .V = is[i].V,
                .C = is[i].C, .KG = model ? 1 : is[i].K, .q_type = is[i].q,
                .g_type = is[i].g, .beta_type = is[i].g, .model = model };
            const enum kcp_storage q = is[i].q == KCP_TYPE_F32 ? KCP_F32 : KCP_BF16;
            const int found = kcp_plain(&c, q, is[i].d, is[i].saves, 1, why,
                                        sizeof why);
            EXPECT(rep, found == (is[i].why != NULL) &&
                   !strcmp(why, is[i].why ? is[i].why : ""), "call %zu, model %d: %s",
                   i, model, why);
            /* members that differ between ranks change nothing */
            c.T = 1 << 20; c.N = 3; c.NS = 7; c.NC = 99; c.R = 4; c.r = 2;
            EXPECT(rep, kcp_plain(&c, q, is[i].d, is[i].saves, 1, NULL, 0) == found,
                   "call %zu: the answer depends on a rank's tokens", i);
            /* the cache of searches must not mistake f16 for bf16 */
            const struct kcp_query y = { .stage = "08_forward", .storage = q,
                .call = &c, .device = is[i].d, .saved = 1, .unlinked = 1 };
            const struct kcp_path *p = kcp_path_find(&y, NULL, NULL, 0);
            c.q_type = is[i].q == KCP_TYPE_F16 ? KCP_AS_Q : KCP_TYPE_F16;
            EXPECT(rep, !p || kcp_path_find(&y, NULL, NULL, 0) != p,
                   "call %zu: f16 takes bf16's path %s", i, p ? p->name : "");
        }
    return KCP_OK;
}
KCP_CHECK(check_08_plain) = { "08_forward", "plain",
    "a call whose path is a program of stages is named with the reason", plain };
