/* survivor_main.c -- is a fold that survived the judge's lists wrong on other inputs?
 *
 * Book: chapter 07, labs/STAFF.md.  Used by: make grade LAB=07m.  Next: apart.h.
 * kcp-lab-check survivor ./lab.so [SEED]: CASES cases that anybody could have, drawn
 * with no list in mind; wrong by more than TIMES limits in one of twenty is a mistake
 * that somebody meets, and status 0. kcp-lab-check survivor ./lab.so 'words': on that
 * case. Every case has a process of its own; one that ended is no number and does not
 * count.
 */
#include "apart.h"
#include "tests/judge/isolation.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CASES = 60, ENOUGH = CASES / 20, TIMES = 10 };
enum { MOST_WORK = 20000000 };                    /* of making a case's maps */

static int between(struct stream *s, int low, int high)
{
    const int x = low + (int)(uniform(s) * (high - low + 1));
    return x < high ? x : high;
}

/* Any sizes that a caller may have, not those of a list; half of K and of V is beyond
 * 64. */
static void draw_words(struct stream *s, char *words, size_t n)
{
    const char *const regime[] = { "live", "strong", "turns", "saturated" };
    const int H = between(s, 1, 3), HV = H * between(s, 1, 3);
    const int K = between(s, 0, 1) ? between(s, 1, 64) : between(s, 65, 256);
    const int V = between(s, 0, 1) ? between(s, 1, 64) : between(s, 65, 256);
    const int many = !between(s, 0, 7), N = many ? between(s, 5, 30) : between(s, 1, 4);
    const int C = between(s, 4, 128);
    int most = MOST_WORK / (HV * K * (K + V + 8 * C)) / N;
    if (most < 40 / N) most = 40 / N;
    if (most > 300) most = 300;
    int at = snprintf(words, n, "%s %s H=%d HV=%d K=%d V=%d C=%d lengths=",
                      regime[between(s, 0, 3)], between(s, 0, 1) ? "kda" : "gdn", H, HV,
                      K, V, C);
    for (int i = 0; i < N; i++)
        at += snprintf(words + at, n - (size_t)at, "%s%d", i ? "," : "",
                       between(s, !i, most));
    if (between(s, 0, 3)) at += snprintf(words + at, n - (size_t)at, " L=%d",
                                         between(s, 3, 24));
    snprintf(words + at, n - (size_t)at, " seed=%d", between(s, 0, 999999));
}

/* One case in a process of its own. */
static int judged(const struct kcp_variant *v, const char *object,
                  const struct kcase *k, struct verdict *out)
{
    char why[160];
    struct isolated x = { .stage = stage_find(v->stage), .variant = v, .object = object,
                          .list = k };
    memset(out, 0, sizeof *out);
    const int status = isolated_case(&x, 0, v->storage, out);
    return isolated_end(&x, why, sizeof why) || status;
}

/* Wrong by so much, in numbers that were computed. */
static int is_wrong(const struct kcp_variant *v, const char *object,
                    const struct kcase *k, struct verdict *t)
{
    return !judged(v, object, k, t) && t->outcome == FAIL && t->worst.tol > 0 &&
           !(t->worst.err <= TIMES * t->worst.tol);
}

/* One case, in words. */
static int on_case(const struct kcp_variant *v, const char *object, const char *words)
{
    struct kcase k;
    struct verdict t;
    char why[256];
    if (case_parse(words, &k, why, sizeof why)) {
        printf("  FAIL  case: found '%s', expected words as a failure prints them\n",
               why);
        return 1;
    }
    if (is_wrong(v, object, &k, &t)) {
        printf("1 passed, 0 failed, 0 skipped\n");
        return 0;
    }
    printf("  FAIL  on '%s' it is not wrong by ten limits: %s\n", words,
           t.outcome == FAIL && t.why[0] ? t.why : outcome_name[t.outcome]);
    return 1;
}

static int outside(const struct kcp_variant *v, const char *object, uint64_t seed)
{
    struct stream s = stream_of(seed, "outside");
    char words[1024], first[1024] = "", why[256];
    int wrong = 0;
    for (int i = 0; i < CASES; i++) {
        struct kcase k;
        struct verdict t;
        draw_words(&s, words, sizeof words);
        if (case_parse(words, &k, why, sizeof why)) {
            fprintf(stderr, "kcp-lab-check: survivor: '%s': %s\n", words, why);
            return 2;
        }
        if (!is_wrong(v, object, &k, &t)) continue;
        if (!wrong++) snprintf(first, sizeof first, "%s", words);
    }
    printf("%s%d of %d cases drawn outside the lists (seed %llu) are wrong by ten"
           " limits, and %d are enough\n", wrong < ENOUGH ? "  FAIL  " : "", wrong,
           CASES, (unsigned long long)seed, ENOUGH);
    if (wrong) printf("        the first: '%s'\n", first);
    return wrong < ENOUGH;
}

int survivor_main(int argc, char **argv)
{
    static struct kcp_variant record;
    const char *object = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";
    char why[256] = "";
    if (!strchr(object, '/') || isolated_probe(object, &record, why, sizeof why) ||
        !stage_find(record.stage)) {
        fprintf(stderr, "kcp-lab-check: survivor: found '%s', expected ./lab.so %s\n",
                object, why);
        return 2;
    }
    case_repeats = 0;                             /* the lists' part */
    if (strchr(more, ' ')) return on_case(&record, object, more);
    const uint64_t seed = *more ? strtoull(more, NULL, 10) : (uint64_t)time(NULL);
    return outside(&record, object, seed);
}
