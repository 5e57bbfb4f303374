/* variants.c -- lists the variants of this program, which the linker collects.
 * Book: CONTRIBUTING.md, "Adding".
 *
 * kcp_variants returns copies of the records. A copy's run() first checks the call
 * (checked.c). The symbols at the linker section's start and end are hidden, so that
 * libkcp.so does not list the records of the program that loads libkcp.so. */
#include "checked.h"
#include "paths.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BOUND __attribute__((weak, visibility("hidden")))
extern const struct kcp_variant *const __start_kcp_variants[] BOUND;
extern const struct kcp_variant *const __stop_kcp_variants[] BOUND;
extern const struct kcp_checked __start_kcp_checked[] BOUND;
extern const struct kcp_checked __stop_kcp_checked[] BOUND;

enum { MOST_VARIANTS = 1024 };
static struct kcp_variant listed[MOST_VARIANTS];
static int nlisted;
static pthread_once_t list_made = PTHREAD_ONCE_INIT;

static void list_all(void)
{
    for (const struct kcp_variant *const *v = __start_kcp_variants;
         v < __stop_kcp_variants && nlisted < MOST_VARIANTS; v++) {
        struct kcp_variant *copy = &listed[nlisted++];
        *copy = **v;
        for (const struct kcp_checked *c = __start_kcp_checked; c < __stop_kcp_checked;
             c++)
            if (c->variant == *v) copy->run = c->run;
    }
}

int kcp_stage_matches(const char *name, const char *stage)
{
    if (!name || !strcmp(name, stage)) return 1;
    if (name[0] && isdigit((unsigned char)name[1]) && strncmp(name, stage, 2)) return 0;
    char *end;
    const long n = strtol(name, &end, 10);
    return end != name && !*end && n == strtol(stage, NULL, 10);
}

const struct kcp_stage *kcp_stage_find(const char *name)
{
    for (int i = 0; name && i < kcp_nstages; i++)
        if (kcp_stage_matches(name, kcp_stages[i].name)) return &kcp_stages[i];
    return NULL;
}

int kcp_stage_is(const char *name, enum kcp_fact fact)
{
    const struct kcp_stage *s = kcp_stage_find(name);
    return s && s->facts & fact;
}

static int mutant(const struct kcp_variant *v)
{
    return !strncmp(v->name, "mutant_", 7);
}

static int by_name(const void *a, const void *b)
{
    const struct kcp_variant *const *x = a, *const *y = b;
    const int s = strcmp((*x)->stage, (*y)->stage), m = mutant(*x) - mutant(*y);
    if (s) return s;
    return m ? -m : strcmp((*x)->name, (*y)->name);
}

int kcp_variants(const char *stage, const char *name, const struct kcp_variant **out,
                 int max)
{
    const struct kcp_variant *all[MOST_VARIANTS];
    int n = 0;
    if (!out || max < 0) return 0;
    pthread_once(&list_made, list_all);
    for (int i = 0; i < nlisted; i++)
        if (kcp_stage_matches(stage, listed[i].stage) &&
            (!name || !strcmp(kcp_path_alias(listed[i].stage, name), listed[i].name)))
            all[n++] = &listed[i];
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int i = 0; i < n && i < max; i++) out[i] = all[i];
    return n < max ? n : max;
}
