/* structs.c -- tables of the public structs' memory layouts, for other languages.
 *
 * A binding that reads these tables needs no copy of the headers, so the binding cannot
 * become outdated. The compiler rejects a misspelt name, because the macros below use
 * names as C tokens. */
#include "kcp.h"
#include "layer.h"

#include <string.h>

struct member {
    const char *of, *name;
    char kind;
    size_t at;
};

/* KIND is the letter for a member's type. In gcc, an enum has the type unsigned int. */
#define KIND(x)                                                                       \
    _Generic((x), int: 'i', unsigned: 'i', int64_t: 'l', size_t: 'z', double: 'd',    \
             default: 'p')
#define AT(s, name) { #s, #name, KIND(((struct s *)0)->name), offsetof(struct s, name) }

static const struct member members[] = {
#define M(name) AT(kcp_call, name)
    M(T), M(N), M(NS), M(NC), M(R), M(r), M(H), M(HV), M(K), M(V), M(C), M(KG), M(D),
    M(Wc), M(model), M(pass), M(part), M(gate), M(beta_form), M(q_type), M(g_type),
    M(beta_type), M(act), M(layout), M(save), M(form), M(walk), M(blocks),
    M(strip_chunks), M(l2norm), M(reuse_M), M(shift), M(scale), M(lower_bound), M(plan),
    M(comm), M(ops), M(work), M(work_bytes), M(stream),
#undef M
#define M(name) AT(kcp_comm, name)
    M(R), M(r), M(backend), M(all_gather), M(send), M(recv), M(group), M(barrier),
    M(fail), M(lost), M(free), M(show),
#undef M
#define M(name) AT(kcp_context, name)
    M(begin), M(end), M(seg0), M(NS), M(NC), M(n_local), M(cu_seqlens), M(seq), M(cu),
    M(cn), M(sc), M(is_first_rank), M(pre_num_ranks), M(is_last_rank),
    M(post_num_ranks), M(conv1d_kernel_size), M(pre_num_conv_tokens),
#undef M
#define M(name) AT(kcp_plan, name)
    M(N), M(R), M(C), M(S), M(T), M(L), M(cu_seqlens), M(cuts), M(moved), M(seg),
    M(h0_rank), M(ht_rank), M(ctx), M(crossing), M(digest), M(order), M(scattered),
    M(B), M(bound), M(owner),
#undef M
#define M(name) AT(kcp_segment, name)
    M(n), M(rank), M(begin), M(end), M(first), M(last), M(prev), M(next), M(pre),
    M(post), M(at),
#undef M
#define M(name) AT(kcp_owners, name)
    M(B), M(bound), M(owner),
#undef M
#define M(name) AT(kcp_stage, name)
    M(name), M(fields), M(nfields), M(args), M(ranks), M(facts),
#undef M
#define M(name) AT(kcp_field, name)
    M(name), M(shape), M(io), M(when), M(store), M(at),
#undef M
#define M(name) AT(kcp_layer, name)
    M(storage), M(where), M(ops), M(forward), M(backward), M(conv), M(family), M(scan),
#undef M
    AT(kcp_forward, saved), AT(kcp_forward, saved_bytes),
    AT(kcp_backward, saved), AT(kcp_backward, saved_bytes),
};

#define S(s) { #s, sizeof(struct s) }
static const struct { const char *name; size_t bytes; } sizes[] = {
    S(kcp_call), S(kcp_step), S(kcp_gate), S(kcp_wy), S(kcp_chunk), S(kcp_affine),
    S(kcp_merge), S(kcp_forward), S(kcp_chunk_backward), S(kcp_wy_backward),
    S(kcp_merge_backward), S(kcp_h0), S(kcp_backward), S(kcp_conv), S(kcp_scan),
    S(kcp_family), S(kcp_ladder), S(kcp_comm), S(kcp_traffic), S(kcp_mapops),
    S(kcp_exchange), S(kcp_halo), S(kcp_segment), S(kcp_context), S(kcp_plan),
    S(kcp_owners), S(kcp_field), S(kcp_stage), S(kcp_variant), S(kcp_layer),
    S(kcp_saved), S(kcp_saved_item),
};

#define E(name) { #name, name }
#define FORM_VALUE(number, name) { #number, number },
#define MODEL_VALUE(NAME, ...) E(KCP_##NAME),
static const struct { const char *name; int value; } values[] = {
    E(KCP_OK), E(KCP_NA), E(KCP_BAD), E(KCP_NO_MEMORY), E(KCP_COMM), E(KCP_CUDA),
    E(KCP_MISMATCH), KCP_MODEL_LIST(MODEL_VALUE) E(KCP_FORWARD), E(KCP_BACKWARD),
    E(KCP_GATE_RAW), E(KCP_GATE_SOFTPLUS), E(KCP_GATE_BOUNDED), E(KCP_BETA_RAW),
    E(KCP_BETA_SIGMOID), E(KCP_BETA_SIGMOID2), E(KCP_ACT_NONE), E(KCP_ACT_SILU),
    E(KCP_RECOMPUTE), E(KCP_SAVE_ALL), E(KCP_KV), E(KCP_VK), E(KCP_LOCAL),
    E(KCP_REVERSE), E(KCP_SUM_LOCAL), E(KCP_ZIGZAG), E(KCP_PLAIN_UNKNOWN), E(KCP_AS_Q),
    E(KCP_TYPE_F64), E(KCP_TYPE_F32), E(KCP_TYPE_BF16), E(KCP_TYPE_F16), E(KCP_F64),
    E(KCP_F32), E(KCP_BF16), E(KCP_HOST), E(KCP_DEVICE), E(KCP_FORMS),
    KCP_FORM_LIST(FORM_VALUE)
};

size_t kcp_struct_size(const char *name)
{
    if (!name) return 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, name)) return sizes[i].bytes;
    return 0;
}

int kcp_struct_member(const char *of, const char *name, size_t *at, char *kind)
{
    if (!of || !name || !at || !kind) return KCP_BAD;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(members[i].of, of) || strcmp(members[i].name, name)) continue;
        *at = members[i].at;
        *kind = members[i].kind;
        return KCP_OK;
    }
    return KCP_BAD;
}

int kcp_enum_value(const char *name, int *value)
{
    if (!name || !value) return KCP_BAD;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (strcmp(values[i].name, name)) continue;
        *value = values[i].value;
        return KCP_OK;
    }
    return KCP_BAD;
}
