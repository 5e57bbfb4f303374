/* modes.c -- checks that gradients have equal bits for all modes of the saved block.
 *
 * Book: chapter 12, "What each mode keeps". Checked by: itself, on a GPU with ranks as
 * threads.  Next: tests/13_backward/strips.c.
 * Mode light gives the bits of mode recompute only if one kernel normalises q and k in
 * both passes. Cases with odd ids (id=1) meet this condition, because they take both
 * passes from one layer. Save-all gives the bits of recompute for blocks of format
 * `chunks`, because forward's scan stores the states that backward would recompute. */
#include "tests/judge/trial.h"
#include "core/paths.h"

static int of_case(struct kcp_report *rep, const struct kcp_variant *v,
                   const char *words)
{
    const int chunks = kcp_path_format(v->stage, v->name) == KCP_FORMAT_CHUNKS;
    const int status = bits_agree(rep, v, words, v, "save=light");
    return status || !chunks ? status : bits_agree(rep, v, words, v, "save=all");
}

static int gpu_modes(struct kcp_report *rep)
{
    static const char *const words[] = {
        "kda live H=2 HV=4 K=64 V=64 lengths=150,0,300 l2norm beta=sigmoid h0 dht id=1",
        "kda live H=2 K=128 V=128 lengths=700,65 strip=2 l2norm h0 dht id=1",
        ("kda live all_gather H=2 K=128 V=128 lengths=500,100 R=3 l2norm reuse_M h0 dht"
         " id=1"),
        "gdn live H=1 HV=3 K=128 V=128 lengths=1,600 gate=softplus dht id=1",
        "gdn live H=1 HV=2 K=64 V=64 lengths=700 strip=2 l2norm h0 id=1",
        "gdn live chain H=2 K=128 V=64 lengths=365 R=2 h0 dht layout=vk id=1" };
    const struct kcp_variant *v[256];
    const int n = kcp_variants("13_backward", NULL, v, 256);
    int err = KCP_OK;
    if (!gpu_of_threads()) {
        printf("  (found no GPU that threads can share: not run)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n && !err; i++)
        for (size_t j = 0; j < sizeof words / sizeof *words && !err; j++)
            if (v[i]->where == KCP_DEVICE) err = of_case(rep, v[i], words[j]);
    return err;
}
KCP_CHECK(check_13_gpu_modes) = { "13_backward", "gpu_modes",
    "on a GPU, light and save-all with a block of chunks give the bits of "
    "recompute", gpu_modes };
