/* words.c -- parses random text as a case of the judge. The text is rejected with one
 * line, or gives a valid case that prints as the same words.
 *
 * Book: CONTRIBUTING.md.  Checked by: make fuzz.  Next: tests/judge/case_text.c. */
#include "tests/judge/judge.h"
#include "tests/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parsing draws no inputs, so the stubs of functions that draw inputs must not be
 * called. */
void family_draw(struct tensor_set *b, const struct kcase *k) { abort(); }
void spike_draw(struct tensor_set *b, const struct kcase *k) { abort(); }

static void check(const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    MUST(c->R >= 1 && c->R <= CASE_RANKS && c->N >= 1 && c->N <= MOST_SEQUENCES);
    MUST(c->H >= 1 && c->HV >= 1 && c->HV % c->H == 0 && c->K >= 1 && c->V >= 1);
    MUST(c->C >= 1 && c->Wc >= 1 && c->KG == (c->model == KCP_GDN ? 1 : c->K));
    MUST(isfinite(c->scale) && c->scale != 0);
    MUST(k->cu[0] == 0 && k->cu[c->N] == c->T);
    for (int n = 0; n < c->N; n++)
        MUST(k->cu[n] <= k->cu[n + 1]);
    for (int r = 0; r < c->R; r++)
        MUST(k->cuts[r] <= k->cuts[r + 1]);
    MUST(k->cuts[0] == 0 && k->cuts[c->R] == c->T);
}

/* Checks that the printed case, parsed again, prints the same text. */
static void read_again(const struct kcase *k)
{
    char first[1024], second[1024], why[300];
    struct kcase back;
    case_print(k, first, sizeof first);
    if (strlen(first) + 1 == sizeof first)
        return;                                  /* truncated */
    MUST(case_parse(first, &back, why, sizeof why) == 0);
    check(&back);
    case_print(&back, second, sizeof second);
    MUST(strcmp(first, second) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { CASES = 8 };
    static struct kcase k[CASES + 1];
    char why[300], *text = malloc(size + 1);
    MUST(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    memset(why, 'x', sizeof why);
    memset(&k[CASES], 0x5a, sizeof k[CASES]);
    const int n = cases_parse(text, k, CASES, why, sizeof why);
    MUST(n >= 0 && n <= CASES);
    for (size_t i = 0; i < sizeof k[CASES]; i++)
        MUST(((unsigned char *)&k[CASES])[i] == 0x5a);
    MUST(n || strnlen(why, sizeof why) < sizeof why);
    for (int i = 0; i < n; i++) {
        check(&k[i]);
        read_again(&k[i]);
    }
    free(text);
    return 0;
}
