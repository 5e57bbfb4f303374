/* registry.c -- variants and checks as the linker found them, sorted by stage and name.
 *
 * Book: CONTRIBUTING.md, "Adding a variant".  Checked by: tests/self.c (their number
 * against the files on disk).  Next: report.c.
 */
#include "judge.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern const struct kcp_variant *const __start_kcp_variants[] __attribute__((weak));
extern const struct kcp_variant *const __stop_kcp_variants[] __attribute__((weak));
extern const struct kcp_check *const __start_kcp_checks[] __attribute__((weak));
extern const struct kcp_check *const __stop_kcp_checks[] __attribute__((weak));

/* "05", "5" and "05_affine" all name the stage 05_affine. */
static int names(const char *asked, const char *stage)
{
    if (!asked) return 1;
    if (!strcmp(asked, stage)) return 1;
    char *end;
    long n = strtol(asked, &end, 10);
    return end != asked && !*end && n == strtol(stage, NULL, 10);
}

int is_mutant(const struct kcp_variant *v) { return !strncmp(v->name, "mutant_", 7); }

const struct kcp_stage *stage_find(const char *name)
{
    for (int i = 0; i < kcp_nstages; i++)
        if (names(name, kcp_stages[i].name)) return &kcp_stages[i];
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct kcp_variant *const *x = a, *const *y = b;
    const int s = strcmp((*x)->stage, (*y)->stage), m = is_mutant(*x) - is_mutant(*y);
    return s ? s : m ? -m : strcmp((*x)->name, (*y)->name);      /* mutants first */
}

int kcp_variants(const char *stage, const char *name, const struct kcp_variant **out,
                 int max)
{
    const struct kcp_variant *all[1024];
    int n = 0;
    for (const struct kcp_variant *const *v = __start_kcp_variants;
         v < __stop_kcp_variants && n < 1024; v++)
        if (names(stage, (*v)->stage) && (!name || !strcmp(name, (*v)->name)))
            all[n++] = *v;
    qsort(all, n, sizeof *all, by_name);
    for (int i = 0; i < n && i < max; i++) out[i] = all[i];
    return n < max ? n : max;
}

int kcp_checks(const char *stage, const struct kcp_check **out, int max)
{
    int n = 0;
    for (const struct kcp_check *const *c = __start_kcp_checks; c < __stop_kcp_checks;
         c++)
        if (names(stage, (*c)->stage) && n < max) out[n++] = *c;
    for (int i = 1; i < n; i++)                                /* by stage, then name */
        for (int j = i; j > 0; j--) {
            int s = strcmp(out[j - 1]->stage, out[j]->stage);
            if (s < 0 || (!s && strcmp(out[j - 1]->name, out[j]->name) <= 0)) break;
            const struct kcp_check *x = out[j];
            out[j] = out[j - 1], out[j - 1] = x;
        }
    return n;
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
    if (exported) return *exported;
    if (first && last && first < last) return *first;
    snprintf(why, n, "%s: no variant record (see KCP_VARIANT in kcp.h)", path);
    return NULL;
}
