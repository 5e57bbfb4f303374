/* parts.c -- compares measured times of passes over ranks with bounds from the bytes of
 * their kernels and with the same passes without messages, and predicts eight GPUs.
 *
 * Book: chapter 20, which shows the output.  Checked by: make book.
 * Next: book/clusters.c.
 *
 * The times are from the newest table in bench/results/ that has the case. */
#include "figures/records.h"

enum { RANKS = 4 };
struct parts { double front, sum, exchange, main; };     /* of a pass, microseconds */
struct row {
    struct parts part;
    double us, low, replay, unsent, beside, copy, gather, T, HV;
    char file[80], form[16], card[16];
};

/* Copies the model's name of the GPU: "H100" of "4 x NVIDIA H100 80GB HBM3". */
static void card_name(const struct record *r, char card[16])
{
    char machine[128];
    record_get(r, "machine", machine);
    const char *name = strstr(machine, "NVIDIA ");
    name = name ? name + strlen("NVIDIA ") : machine;
    snprintf(card, 16, "%.*s", (int)strcspn(name, " "), name);
}

static struct row row_of(const struct records *all)
{
    const struct record *r = &all->row;
    char text[128];
#define NUMBER(column) record_number(r, column)
    struct row row = {
        .part = { NUMBER("front"), NUMBER("sum"), NUMBER("exchange"), NUMBER("main") },
        .us = NUMBER("us"), .low = NUMBER("us_p10"), .replay = NUMBER("replay"),
        .unsent = NUMBER("unsent"), .beside = NUMBER("unsent_beside"),
        .copy = NUMBER("copy"), .gather = NUMBER("gather_us"), .T = NUMBER("T"),
        .HV = NUMBER("HV") };
    snprintf(row.form, sizeof row.form, "%.15s", record_get(r, "form", text));
    card_name(r, row.card);
    snprintf(row.file, sizeof row.file, "%s", records_file(all));
    return row;
}

/* Returns the row of a case, stage and form (NULL: the fastest form) with one segment
 * per rank, from the newest table that has such a row; exits if no table has one. */
static struct row newest(const char *what, const char *stage, const char *form)
{
    static struct records all;
    struct row best = { 0 };
    records_open(&all, "bench/results/2*.tsv");
    while (records_next(&all)) {
        const struct record *r = &all.row;
        if (!record_is(r, "case", what) || !record_is(r, "stage", stage) ||
            (form && !record_is(r, "form", form)) || !record_is(r, "kind", "time") ||
            !record_is(r, "head_parts", "1") || !record_is(r, "peer", ""))
            continue;
        const struct row row = row_of(&all);
        const int newer = strcmp(row.file, best.file) != 0;
        if (row.us > 0 && (newer || row.us < best.us)) best = row;
    }
    if (best.us > 0) return best;
    fprintf(stderr, "parts.c: bench/results: found no %s %s %s\n", what, stage,
            form ? form : "in any form");
    exit(1);
}

/* ---- bounds: bytes that the kernels of chapter 18 move per token and head, K = V =
 * 128, C = 64, HV = H: forward's factors, map and scan; backward's dh_ext (only with
 * ranks), states, reverse scan and finish. */
static const struct { double forward, backward; } bytes[] = {
    { 1704 + 856 + 1448, 1192 + 1624 + 1960 + 3608 },         /* one gate per channel */
    { 1197 + 602 + 1198, 942 + 5922 } };                       /* one per head */

static void floors(void)
{
    static const struct { const char *what, *says; int model, ranks, both; } list[] = {
        { "kda_2x1_bare", "KDA forward", 0, 2, 0 },
        { "gdn_2x1_bare", "GDN forward", 1, 2, 0 },
        { "kda_2x1", "KDA both", 0, 2, 1 }, { "gdn_2x1", "GDN both", 1, 2, 1 },
        { "kda_2x1_t4096_bare", "KDA forward", 0, 2, 0 },
        { "kda_4x1_bare", "KDA forward", 0, 4, 0 },
        { "gdn_4x1_bare", "GDN forward", 1, 4, 0 } };
    printf("== 20-floors\na pass over ranks beside the time in which memory could move "
           "what its kernels read\nand write, at the copy's rate of the same run; "
           "microseconds\n\n");
    printf("GPUs     pass        T per rank   fastest form     time   floor   "
           "of the time\n");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const struct row fw = newest(list[i].what, "08_forward", NULL);
        double us = fw.us, moved = bytes[list[i].model].forward;
        if (list[i].both) {
            us += newest(list[i].what, "13_backward", NULL).us;
            moved += bytes[list[i].model].backward;
        }
        const double th = fw.T / list[i].ranks * fw.HV;
        const double floor_us = 1e6 * th * moved / fw.copy;
        printf("%d %-6s %-13s %8.0f   %-12s %8.0f %7.0f %11.0f %%\n", list[i].ranks,
               fw.card, list[i].says, fw.T / list[i].ranks, fw.form, us, floor_us,
               100 * floor_us / us);
        if (i == 0)
            printf("@20/floor_share %.0f\n@20/exchange_share %.1f\n@20/floor_card %s\n"
                   "@20/floor_us %.0f\n@20/floor_time %.0f\n@20/floor_copy %.2f\n",
                   100 * floor_us / us, 100 * fw.part.exchange / us, fw.card, floor_us,
                   us, fw.copy / 1e12);
        if (i == 4)
            printf("@20/short_us %.0f\n@20/short_time %.0f\n", floor_us, us);
    }
}

/* ---- short shards on a busy host: plain calls against replayed CUDA graphs */
static void replays(void)
{
    static const char *const cases[] = { "kda_2x1_t1024_bare", "kda_2x1_t4096_bare" };
    static const char *const forms[] = { "all_gather", "chain", "chain_window" };
    printf("== 20-replays\nKDA forward on 2 GPUs, 32 heads, nothing kept, a busy host: "
           "microseconds\n\n");
    printf("GPUs     T per rank   form            median   fastest tenth   "
           "from a graph\n");
    for (int c = 0; c < 2; c++)
        for (int f = 0; f < 3; f++) {
            const struct row row = newest(cases[c], "08_forward", forms[f]);
            printf("2 %-6s %10.0f   %-12s %9.0f %15.0f %14.0f\n", row.card, row.T / 2,
                   forms[f], row.us, row.low, row.replay);
            if (c == 0 && f > 0)
                printf("@20/late%d %.0f\n@20/late%d_low %.0f\n@20/late%d_graph %.0f\n",
                       f, row.us, f, row.low, f, row.replay);
        }
    const struct row all = newest(cases[1], "08_forward", "all_gather");
    const struct row hop = newest(cases[1], "08_forward", "chain_window");
    printf("@20/fuse_all %.0f\n@20/fuse_gather %.0f\n@20/fuse_window %.0f\n",
           all.part.exchange, all.gather, hop.part.exchange);
    printf("@20/late_card %s\n", hop.card);
    const char *uneven = "kda_2x1_cuts_46_54_bare";
    const struct row sent = newest(uneven, "08_forward", "chain");
    const struct row written = newest(uneven, "08_forward", "chain_window");
    printf("@20/hop_sent %.0f\n@20/hop_written %.0f\n", sent.part.exchange,
           written.part.exchange);
}

/* ---- times without the exchange: an upper bound on the gain from hiding the
 * exchange */
static void unsent(void)
{
    static const struct { const char *what, *says; } list[] = {
        { "kda_2x1_bare", "KDA forward" }, { "gdn_2x1_bare", "GDN forward" } };
    static const char *const forms[] = { "all_gather", "chain", "scan" };
    double most = 0, noise = 0;                     /* noise: largest loss, per cent */
    printf("== 20-unsent\na forward on 2 GPUs, T = 131072, 32 heads, nothing kept, and "
           "the same with its\nmessages left out; microseconds\n\n");
    printf("GPUs     pass          form             time   exchange   unsent   "
           "the most to gain\n");
    for (int c = 0; c < 2; c++)
        for (int f = 0; f < 3; f++) {
            const struct row row = newest(list[c].what, "08_forward", forms[f]);
            const double us = row.beside > 0 ? row.beside : row.us;
            const double share = 100 * (1 - row.unsent / us);
            printf("2 %-6s %-13s %-12s %8.0f %10.0f %8.0f %16.1f %%\n", row.card,
                   list[c].says, row.form, us, row.part.exchange, row.unsent, share);
            if (c == 0 && f == 1)
                printf("@20/unsent_card %s\n@20/unsent_with %.0f\n"
                       "@20/unsent_without %.0f\n", row.card, us, row.unsent);
            if (!strcmp(forms[f], "chain") && share > most)
                most = share;
            noise = -share > noise ? -share : noise;
        }
    printf("@20/unsent_most %.1f\n@20/unsent_noise %.0f\n", most, noise);
}

/* ---- a prediction for eight GPUs from four: each GPU has half of the work, and the
 * chain has seven hops instead of three */
static void eight(void)
{
    static const struct { const char *four, *says; } list[] = {
        { "kda_4x1_bare", "KDA forward" }, { "gdn_4x1_bare", "GDN forward" } };
    printf("== 20-eight\na model of 8 GPUs, T = 131072, 32 heads, nothing kept: front, "
           "sum and main are half\nof those measured on 4, in a chain; the exchange is "
           "7 of its hops, on 4 there are 3;\nmicroseconds\n\n");
    printf("pass           front    sum   exchange   main   in all   "
           "measured on\n");
    for (int i = 0; i < 2; i++) {
        const struct row four = newest(list[i].four, "08_forward", "chain");
        const struct parts p = { four.part.front / 2, four.part.sum / 2,
                                 7 * four.part.exchange / (RANKS - 1),
                                 four.part.main / 2 };
        const double halved = p.front + p.sum + p.main;
        printf("%-13s %6.0f %6.0f %10.0f %6.0f %8.0f   %d %s: %.0f\n", list[i].says,
               p.front, p.sum, p.exchange, p.main, halved + p.exchange, RANKS,
               four.card, four.us);
        if (i == 0)
            printf("@20/eight_kda %.2f\n@20/eight_card %s\n@20/eight_halved %.0f\n"
                   "@20/eight_hop %.1f\n", (halved + p.exchange) / 1000, four.card,
                   halved, p.exchange / 7);
    }
}

int main(void)
{
    floors();
    replays();
    unsent();
    eight();
    return 0;
}
