/* paths.c -- checks the table of paths, which selects the kernels of a call.
 * Book: chapter 08, "Paths". */
#include "tests/judge/paths.h"
#include "tests/judge/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows */

static int agrees(struct kcp_report *rep)
{
    static const char *const keys[] = { "02", "03", "04", "05", "09", "10", "11" };
    const struct kcp_variant *v;
    int cuda = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        const int pair = !strncmp(p->stage, "08", 2) || !strncmp(p->stage, "13", 2);
        const struct kcp_stage *s = stage_find(p->stage);
        EXPECT(rep, !strcmp(p->arch, "host") || !strncmp(p->arch, "sm_", 3),
               "%s: architecture %s", p->name, p->arch);
        EXPECT(rep, s && !strcmp(s->name, p->stage), "%s: no stage %s", p->name,
               p->stage);
        for (int j = 0; j < i; j++)
            EXPECT(rep, strcmp(kcp_paths[j].name, p->name), "%s: duplicate", p->name);
        EXPECT(rep, pair == (p->format != 0), "%s: bad format %d", p->name, p->format);
        EXPECT(rep, !pair || kcp_format_version(p->format) > 0, "%s: unknown format %d",
               p->name, p->format);
        int readers = strncmp(p->stage, "08", 2) != 0;
        for (int j = 0; j < kcp_npaths; j++)
            readers += !strcmp(kcp_paths[j].stage, "13_backward") &&
                       kcp_paths[j].format == p->format &&
                       kcp_paths[j].storage == p->storage;
        EXPECT(rep, readers, "path %s: no backward reads its saved block", p->name);
        cuda |= kcp_variants(p->stage, p->kernel, &v, 1) > 0;
    }
    for (int i = 0; i < kcp_npaths && cuda; i++)
        for (int j = 0; j < 7; j++) {
            const struct kcp_path *p = &kcp_paths[i];
            char name[40];
            if (!kcp_path_word(p, keys[j], name, sizeof name)) continue;
            const int hopper = strstr(name, "_sm90") != NULL;
            EXPECT(rep, kcp_variants(keys[j], name, &v, 1) > 0 || hopper,
                   "%s: stage %s has no %s", p->name, keys[j], name);
            EXPECT(rep, !hopper || !strcmp(p->arch, "sm_90a"), "%s runs %s on %s",
                   p->name, name, p->arch);
        }
    return KCP_OK;
}
KCP_CHECK(check_08_paths_agree) = { "08_forward", "paths_agree",
    "for each forward, a backward reads its saved block, and the stages and kernels "
    "named in the path table exist", agrees };

/* ---- calls */

/* Returns 1 if a row of the stage for this storage names the model. A model of stage 16
 * needs no kernels. */
static int is_named(const char *stage, enum kcp_model model, int storage)
{
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        if (strcmp(p->stage, stage) || (int)p->storage != storage) continue;
        if (!strcmp(p->model, "any") || has_word(p->model, model_name[model], " "))
            return 1;
    }
    return 0;
}

static int covers(struct kcp_report *rep)
{
    static const char *const stages[] = { "08_forward", "13_backward", "14_conv",
                                          "15_scan", "16_family" };
    const struct kcp_device d = { 90, 132, 232448, 1, 1 };
    const struct kcp_path *reached[16];
    for (int s = 0; s < 5; s++)
        for (int list = 0; list < 3; list++) {
            const struct kcp_stage *stage = stage_find(stages[s]);
            int n = 0;
            struct kcase *k = list == 2 ? cases_tall(stage, 1, 0, &n)
                                        : cases_make(stage, 0, list, 1, 0, &n);
            for (int i = 0; i < n; i++)
                for (int storage = KCP_F64; storage <= KCP_BF16; storage++)
                    EXPECT(rep, !is_named(stages[s], k[i].call.model, storage) ||
                           paths_of_case(stage, NULL, storage, &k[i], &d, reached, 16),
                           "%s, case %d: no row fits", stages[s], k[i].id);
            free(k);
        }
    return KCP_OK;
}
KCP_CHECK(check_08_paths_cover) = { "08_forward", "paths_cover",
    "every case of the judge has a row in the path table for each storage type for "
    "which a row names its model",
    covers };

/* Returns the name of the launch or, if it has none, of the row that the table of paths
 * selects for call c with one sequence of T tokens (if T < 0: -T sequences of one
 * token) on R ranks. */
static const char *row_of(struct kcp_call c, int64_t T, int R,
                          const struct kcp_device *d, int saved, char *why, size_t n)
{
    enum { MOST = 65536 };
    static int64_t cu[MOST + 1];
    const int N = T < 0 ? (int)-T : 1;
    struct kcp_plan *plan;
    why[0] = 0;
    for (int i = 0; i <= N && N <= MOST; i++) cu[i] = T < 0 ? i : i * T;
    if (kcp_plan_make(&plan, N, cu, R, NULL, 0, c.C, 1, NULL)) return "no plan";
    kcp_layer_call(&(struct kcp_layer){ 0 }, &c, plan, NULL);
    c.R = R;
    const struct kcp_query q = { .stage = "08_forward", .storage = KCP_BF16, .call = &c,
                               .device = d, .saved = saved, .unlinked = 1 };
    const struct kcp_path *p = kcp_path_find(&q, NULL, why, n);
    const char *name = p ? kcp_path_launch(p, &q) : "none";
    kcp_plan_free(plan);
    return name;
}

static int choices(struct kcp_report *rep)
{
    const struct kcp_device h200 = { 90, 132, 232448, 1, 0 };
    const struct kcp_device ada = { 89, 132, 101376, 1, 0 };
    const struct kcp_device none = { 80, 108, 0, 0, 0 };
    const struct kcp_device twice = { 90, 264, 232448, 1, 0 };
    const struct {
        int K, V, HV, gdn, save, saved, R;
        int64_t T;
        const struct kcp_device *d;
        const char *row;
        int bounded;
    } is[] = {
        { 128, 128, 96, 0, 0, 0, 1, 8192, &h200, "forward_kda_one", 1 },
        { 128, 128, 66, 1, 0, 0, 1, 8192, &h200, "forward_gdn_one", 1 },
        { 128, 128, 65, 1, 0, 0, 1, 8192, &h200, "forward_gdn_narrow", 1 },
        { 128, 128, 53, 0, 0, 1, 1, 8192, &h200, "forward_kda_one_kept", 1 },
        { 128, 128, 52, 0, 0, 1, 1, 8192, &h200, "forward_kda_narrow", 1 },
        { 128, 128, 96, 0, KCP_SAVE_ALL, 1, 1, 8192, &h200, "forward_kda_one_kept", 1 },
        { 128, 128, 96, 0, 0, 0, 2, 8192, &h200, "forward_kda_maps_wide", 1 },
        { 128, 128, 67, 0, 0, 0, 1, 8192, &h200, "forward_kda_by_head", 0 },
        { 128, 128, 66, 0, 0, 0, 1, 8192, &h200, "forward_kda_narrow", 0 },
        { 128, 128, 67, 0, 0, 0, 1, 262140 * 64, &h200, "forward_kda_by_head", 0 },
        { 128, 128, 67, 0, 0, 0, 1, 262140 * 64 + 1, &h200,
          "forward_kda_maps_wide", 0 },
        { 128, 128, 2, 0, 0, 0, 1, -65535, &h200, "forward_kda_by_head", 0 },
        { 128, 128, 2, 0, 0, 0, 1, -65536, &h200, "forward_stages", 0 },
        { 128, 128, 2, 1, 0, 1, 1, -65536, &h200, "forward_stages", 0 },
        { 128, 64, 96, 0, 0, 0, 1, 8192, &h200, "forward_kda_narrow", 1 },
        { 128, 128, 32, 0, 0, 1, 1, 65536, &h200, "forward_kda_windows", 0 },
        { 128, 128, 74, 0, 0, 1, 1, 8192, &h200, "forward_kda_by_head_kept", 0 },
        { 128, 128, 73, 0, 0, 1, 1, 8192, &h200, "forward_kda_wide", 0 },
        { 128, 128, 96, 0, KCP_SAVE_ALL, 1, 1, 8192, &h200, "forward_kda_kept_wide",
          0 },
        { 128, 128, 96, 0, 0, 1, 1, 8192, &twice, "forward_kda_narrow", 0 },
        { 128, 128, 4, 0, 0, 1, 1, 150, &h200, "forward_kda_narrow", 0 },
        { 128, 128, 8, 0, 0, 0, 1, 65536, &h200, "forward_kda_maps_narrow", 0 },
        { 128, 128, 96, 1, 0, 0, 2, 8192, &h200, "forward_gdn_maps_wide", 0 },
        { 128, 128, 32, 0, 0, 1, 2, 131072, &h200, "forward_kda_walk_narrow", 0 },
        { 128, 128, 32, 1, 0, 1, 2, 131072, &h200, "forward_gdn_walk_narrow", 0 },
        { 128, 128, 32, 0, 0, 1, 2, 8192, &h200, "forward_kda_maps_narrow", 0 },
        { 128, 128, 8, 0, 0, 1, 2, 131072, &h200, "forward_kda_maps_narrow", 0 },
        { 64, 64, 32, 1, 0, 1, 1, 8192, &h200, "forward_gdn_windows", 0 },
        { 128, 128, 32, 0, KCP_SAVE_ALL, 1, 1, 8192, &h200,
          "forward_kda_kept_windows", 0 },
        { 128, 128, 96, 1, KCP_SAVE_ALL, 1, 1, 8192, &h200,
          "forward_gdn_kept_wide", 0 },
        { 128, 128, 8, 0, KCP_SAVE_ALL, 1, 1, 65536, &h200,
          "forward_kda_kept_maps_narrow", 0 },
        { 128, 256, 96, 0, KCP_SAVE_ALL, 1, 1, 8192, &h200, "forward_adapted", 0 },
        { 128, 128, 32, 0, KCP_SAVE_ALL, 0, 1, 8192, &h200, "forward_kda_windows", 0 },
        { 128, 64, 32, 0, KCP_SAVE_ALL, 1, 1, 8192, &h200, "forward_adapted", 0 },
        { 128, 256, 32, 0, 0, 1, 1, 8192, &h200, "forward_adapted", 0 },
        { 96, 96, 16, 0, 0, 0, 1, 8192, &h200, "forward_adapted", 0 },
        { 128, 512, 6, 1, 0, 0, 2, 8192, &h200, "forward_adapted", 0 },
        { 192, 192, 8, 1, 0, 1, 1, 8192, &h200, "forward_plain", 0 },
        { 256, 256, 8, 1, 0, 1, 1, 8192, &h200, "forward_gdn_k256", 0 },
        { 256, 512, 6, 0, 0, 1, 1, 8192, &h200, "forward_kda_k256_v512", 0 },
        { 256, 256, 8, 1, 0, 1, 2, 8192, &h200, "forward_gdn_k256_maps", 0 },
        { 256, 512, 6, 0, 0, 1, 2, 8192, &h200, "forward_kda_k256_v512", 0 },
        { 64, 192, 32, 0, 0, 1, 1, 8192, &h200, "forward_adapted", 0 },
        { 5, 7, 3, 0, 0, 1, 1, 300, &h200, "forward_adapted", 0 },
        { 300, 64, 3, 0, 0, 1, 1, 300, &h200, NULL, 0 },
        { 128, 128, 32, 0, 0, 1, 1, 8192, &ada, "forward_stages", 0 },
        { 128, 128, 32, 0, 0, 1, 1, 8192, &none, NULL, 0 } };
    char why[300];
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const struct kcp_call c = {
            .H = is[i].HV, .HV = is[i].HV, .K = is[i].K, .V = is[i].V, .C = 64,
            .KG = is[i].gdn ? 1 : is[i].K, .model = is[i].gdn ? KCP_GDN : KCP_KDA,
            .save = is[i].save, .lower_bound = -5,
            .gate = is[i].bounded ? KCP_GATE_BOUNDED : KCP_GATE_RAW };
        const char *name = row_of(c, is[i].T, is[i].R, is[i].d, is[i].saved, why,
                                  sizeof why);
        const char *row = is[i].row ? is[i].row : "none";
        EXPECT(rep, !strcmp(name, row), "call %zu: %s, not %s; %s", i, name, row, why);
        const int has_message = is[i].d == &ada || !is[i].row;
        EXPECT(rep, has_message == (why[0] != 0), "call %zu: message '%s'", i, why);
        if (is[i].d == &ada)
            EXPECT(rep, strstr(why, "forward_fused is not here") &&
                   strstr(why, "path forward_stages (v2_stages) runs instead"), "%s",
                   why);
        if (is[i].d == &none) EXPECT(rep, strstr(why, "no code for sm_80"), "%s", why);
        if (!is[i].row && is[i].d == &h200)
            EXPECT(rep, strstr(why, "no path takes K = "), "%s", why);
    }
    return KCP_OK;
}
KCP_CHECK(check_08_paths_choose) = { "08_forward", "paths_choose",
    "each listed call selects its row of the path table, and an unknown GPU gets a "
    "generic row and a notice", choices };

static int absent(struct kcp_report *rep)
{
    const struct kcp_device h200 = { 90, 132, 232448, 1, 0 };
    struct kcp_device ada = h200;
    struct kcp_path p = { "test", "08_forward", "sm_90a", KCP_BF16, "any", "any", "any",
                          "any", "1", "v9_none", 1, "", NULL };
    const struct kcp_call c = { .K = 128, .V = 128, .C = 64 };
    const struct kcp_query q = { .stage = "13_backward", .storage = KCP_BF16,
                                 .call = &c, .device = &h200, .saved = 1, .format = 7,
                                 .unlinked = 1 };
    char here[120], why[300];
    ada.arch = 89;
    kcp_path_here(&p, &h200, here, sizeof here);
    EXPECT(rep, !strcmp(here, "not here: v9_none is not in this program"), "%s", here);
    p.kernel = "ref";
    kcp_path_here(&p, &h200, here, sizeof here);
    EXPECT(rep, !strcmp(here, "here"), "%s", here);
    kcp_path_here(&p, &ada, here, sizeof here);
    EXPECT(rep, !strcmp(here, "not here: the GPU is sm_89"), "%s", here);
    kcp_path_here(&p, NULL, here, sizeof here);
    EXPECT(rep, !strcmp(here, "not here: no GPU"), "%s", here);
    EXPECT(rep, !kcp_path_find(&q, NULL, why, sizeof why) &&
           strstr(why, "saved block of this format"), "format 7 is found: %s", why);
    EXPECT(rep, !strcmp(kcp_path_alias("13_backward", "v3_records"), "v2_stages") &&
           !strcmp(kcp_path_alias("08_forward", "v3_records"), "v3_prepare_scan") &&
           !strcmp(kcp_path_alias("08_forward", "v2_stages"), "v2_stages"),
           "the old name of a renamed kernel does not select that kernel");
    return KCP_OK;
}
KCP_CHECK(check_08_paths_absent) = { "08_forward", "paths_absent",
    "a missing variant, GPU, architecture or format gives a message", absent };
