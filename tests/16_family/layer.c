/* layer.c -- compares the functions of layer.h with the references of chapters 15, 16.
 * Book: chapter 16. */
#include "run.h"

static int call_layer(struct kcp_family *a)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    return kcp_layer_family(&layer, a);
}

static int run_layer(void *args) { return call_layer(args); }
static int run_layer_keeping(void *args) { return family_kept(args, call_layer); }
static const struct kcp_variant variants[] = {
    { "16_family", "layer", "", KCP_F64, KCP_HOST, "any", run_layer, NULL },
    { "16_family", "layer_keeping", "", KCP_F64, KCP_HOST, "any", run_layer_keeping,
      NULL } };

static int by_layer(struct kcp_report *rep)
{
    static const char *const owners[] = { "", "owners=zigzag", "owners=striped" };
    const struct kcp_variant ref = reference_of(stage_find("16"));
    enum kcp_model models[KCP_MODELS];
    const int each = 6 * KCP_FORMS, all = models_of(stage_find("16"), models) * each;
    int status = KCP_OK;
    for (int i = 0; i < all && !status; i++) {
        char words[300];
        snprintf(words, sizeof words, "%s %s " BATCH "R=%d %s",
                 model_name[models[i / each]], kcp_form_names[i % KCP_FORMS],
                 i % each < each / 2 ? 2 : 5, owners[i / KCP_FORMS % 3]);
        status = bits_agree(rep, &ref, words, &variants[i % 2], "");
    }
    return status;
}
KCP_CHECK(check_16_layer) = { "16_family", "layer",
    "kcp_layer_family gives the bits of the reference for all exchange forms and "
    "tables of owners", by_layer };

static int run_scan_layer(void *args)
{
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    return kcp_layer_scan(&layer, args);
}

static int scan(struct kcp_report *rep)
{
    const struct kcp_variant ref = reference_of(stage_find("15"));
    const struct kcp_variant own = { "15_scan", "layer", "", KCP_F64, KCP_HOST, "any",
                                     run_scan_layer, NULL };
    return bits_agree(rep, &ref, "live kda H=2 HV=4 K=6 V=5 C=8 D=3 spike "
                      "lengths=24,9 R=2 h0 dht", &own, "");
}
KCP_CHECK(check_15_layer) = { "15_scan", "layer",
    "kcp_layer_scan gives the bits of the reference", scan };
