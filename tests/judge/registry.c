/* registry.c -- finds the checks that the linker collected, and loads variants from
 * shared objects. ref/core/variants.c finds the variants linked into this program.
 * Book: CONTRIBUTING.md, "Adding". */
#include "judge.h"
#include <dlfcn.h>
#include <err.h>
#include <stdlib.h>
#include <string.h>

extern const struct kcp_check *const __start_kcp_checks[] __attribute__((weak));
extern const struct kcp_check *const __stop_kcp_checks[] __attribute__((weak));

int is_mutant(const struct kcp_variant *v) { return !strncmp(v->name, "mutant_", 7); }

const struct kcp_stage *stage_find(const char *name) { return kcp_stage_find(name); }

struct kcp_variant reference_of(const struct kcp_stage *s)
{
    return (struct kcp_variant){ s->name, "ref", "the reference, on R ranks", KCP_F64,
                                 KCP_HOST, "any", s->ref, NULL };
}

int kcp_checks(const char *stage, const struct kcp_check **out, int max)
{
    int n = 0;
    for (const struct kcp_check *const *c = __start_kcp_checks; c < __stop_kcp_checks;
         c++) {
        if (!kcp_stage_matches(stage, (*c)->stage)) continue;
        if (n < max) out[n++] = *c;
        else if (max > 1) errx(2, "more than %d checks: raise MOST_CHECKS", max);
    }
    for (int i = 1; i < n; i++)                       /* sorts by stage, then by name */
        for (int j = i; j > 0; j--) {
            int s = strcmp(out[j - 1]->stage, out[j]->stage);
            if (s < 0 || (!s && strcmp(out[j - 1]->name, out[j]->name) <= 0)) break;
            const struct kcp_check *x = out[j];
            out[j] = out[j - 1];
            out[j - 1] = x;
        }
    return n;
}

int check_is_selected(const struct options *o, const struct kcp_check *c)
{
    const int device = !strncmp(c->name, "gpu_", 4) || !strcmp(c->name, "alone");
    return (!o->variant || !strcmp(o->variant, c->name)) && (!o->only_device || device);
}

int check_is_here(const struct options *o, const struct kcp_check *c)
{
    static const char *const over_processes[] = { "gpu_graph_ranks", "gpu_from",
                                                  "gpu_split" };
    if (ranks_mine() < 0) return !o->quick;
    for (size_t i = 0; i < sizeof over_processes / sizeof *over_processes; i++)
        if (!strcmp(c->name, over_processes[i])) return o->variant != NULL;
    return 0;
}

const struct kcp_variant *variant_load(const char *path, char *why, size_t n)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        snprintf(why, n, "%s", dlerror());
        return NULL;
    }
    const struct kcp_variant *const *first = dlsym(so, "__start_kcp_variants");
    const struct kcp_variant *const *last = dlsym(so, "__stop_kcp_variants");
    const struct kcp_variant *const *exported = dlsym(so, "kcp_variant");
    const struct kcp_variant *const *at = exported ? exported : first;
    if (!exported && !(first && last && first < last)) {
        snprintf(why, n, "%s: no symbol 'kcp_variant' that points to a record", path);
        return NULL;
    }
    if (*at && (*at)->stage && (*at)->name && (*at)->run) return *at;
    snprintf(why, n, "%s: kcp_variant points to %s", path,
             *at ? "a record without a stage, a name or a function" : "no record");
    return NULL;
}
