/* modes.c -- checks that gradients have equal bits for all modes of the saved block.
 *
 * Book: chapter 12, "What each mode keeps". Checked by: itself, on a GPU with ranks as
 * threads.  Next: tests/13_backward/strips.c.
 * Mode light gives the bits of mode recompute only if one kernel normalises q and k in
 * both passes, as in cases with odd ids (id=1), which take both passes from one layer.
 * Save-all gives the bits of recompute for blocks of format `chunks`, because forward's
 * scan stores the states that backward would recompute. */
#include "tests/judge/trial.h"
#include "core/paths.h"

static void differ(struct kcp_report *rep, const struct trial *x,
                   const struct trial *to, const char *words)
{
    static const char *const names[] = { "recompute", "all", "light" };
    for (int r = 0; r < x->R; r++)
        for (int i = 0; i < x->rank[r].n; i++) {
            const struct buffer *o = &x->rank[r].buffer[i];
            const struct buffer *p = &to->rank[r].buffer[i];
            if (!o->want || !p->want) continue;
            if (stage_of_field(x->stage, o->field) != x->stage) continue;
            const int64_t bytes = buffer_other_bytes(o, p, 0);
            EXPECT(rep, !bytes, "%s, %s: rank %d, save=%s: %s: %lld bytes differ from "
                                "recompute", x->variant->name, words, r,
                   names[x->rank[r].call.save], o->field->name, (long long)bytes);
        }
}

static int run_mode(struct trial *t, struct kcase *k, enum kcp_save save,
                    struct kcp_plan *p, char *why, size_t n)
{
    k->call.save = save;
    const struct expected *e =
        expected_of(t->stage, k, KCP_BACKWARD, t->variant->storage, p);
    const int status =
        e ? trial_fill(t, k, p, KCP_BACKWARD, &e->in, &e->want) : KCP_NO_MEMORY;
    return status ? status : trial_run(t, why, n);
}

static int of_case(struct kcp_report *rep, const struct kcp_variant *v,
                   const char *words)
{
    const struct kcp_stage *s = stage_find("13");
    const int chunks = kcp_path_format(s->name, v->name) == KCP_FORMAT_CHUNKS;
    static const enum kcp_save others[] = { KCP_SAVE_LIGHT, KCP_SAVE_ALL };
    struct trial one = { .stage = s, .variant = v, .mem = gpu_of_threads() }, x = one;
    struct kcase k;
    char why[160] = "";
    if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
    struct kcp_plan *p = case_plan(&k, k.call.R);
    int status = p ? run_mode(&one, &k, KCP_RECOMPUTE, p, why, sizeof why)
                   : KCP_NO_MEMORY;
    for (int i = 0; i < 1 + chunks && !status; i++) {
        status = run_mode(&x, &k, others[i], p, why, sizeof why);
        if (!status) differ(rep, &x, &one, words);
        trial_free(&x);
    }
    EXPECT(rep, !status || status == KCP_NA, "%s, %s: status %d %s", v->name, words,
           status, why);
    trial_free(&one);
    kcp_plan_free(p);
    return status == KCP_NO_MEMORY ? status : KCP_OK;
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
        printf("  (no GPU that threads share: not run)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n && !err; i++)
        for (size_t j = 0; j < sizeof words / sizeof *words && !err; j++)
            if (v[i]->where == KCP_DEVICE) err = of_case(rep, v[i], words[j]);
    return err;
}
KCP_CHECK(check_13_gpu_modes) = { "13_backward", "gpu_modes",
    "the modes light, and save-all with a block of chunks, give the bits of "
    "recompute", gpu_modes };
