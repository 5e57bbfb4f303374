/* self_structs.c -- what the library tells other languages of its structs is so.
 *
 * Book: none.  Checked by: itself.  Next: ../../ref/core/structs.c.
 */
#include "judge.h"

#define SAME(s, m, k)                                                                 \
    (kcp_struct_member(#s, #m, &at, &kind) == KCP_OK && at == offsetof(struct s, m) && \
     kind == k)

static int structs(struct kcp_report *rep)
{
    size_t at = 0;
    char kind = 0;
    int x = -1;
    EXPECT(rep, kcp_struct_size("kcp_call") == sizeof(struct kcp_call), "its size");
    EXPECT(rep, kcp_struct_size("kcp_none") == 0, "a struct that is none");
    EXPECT(rep, SAME(kcp_call, T, 'l') && SAME(kcp_call, form, 'i') &&
           SAME(kcp_call, scale, 'd') && SAME(kcp_call, work, 'p') &&
           SAME(kcp_call, work_bytes, 'z') && SAME(kcp_comm, recv, 'p') &&
           SAME(kcp_plan, ctx, 'p') && SAME(kcp_backward, saved_bytes, 'z'),
           "offsets and kinds");
    EXPECT(rep, kcp_struct_member("kcp_call", "none", &at, &kind) == KCP_BAD, "none");
    EXPECT(rep, kcp_enum_value("KCP_SCAN", &x) == KCP_OK && x == KCP_SCAN, "%d", x);
    EXPECT(rep, kcp_enum_value("KCP_NONE", &x) == KCP_BAD, "no such name");
    for (int i = 0; i < kcp_nstages; i++) {
        const char *name = kcp_stages[i].name;
        char of[32];
        snprintf(of, sizeof of, "kcp_%s", name + 3);
        EXPECT(rep, kcp_struct_size(of) == kcp_stages[i].args, "%s", of);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_structs) = { "00_judge", "structs",
    "sizes, offsets and values, asked by name, are the compiler's", structs };
