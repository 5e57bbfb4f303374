/* clusters.c -- the cost model: floors of one GPU, forms of the exchange, two levels.
 *
 * Book: chapters 17 and 19, which show what this prints.  Checked by: make book.
 * Next: figures/roofline.c.  Events are simulated rank by rank; every assumption is a
 * constant below and is printed with the results. */
#include <math.h>
#include <stdio.h>

/* Microseconds, bytes a microsecond. Inside: measured on four H200s, rounded. Between
 * nodes: assumed, one 400 Gbit/s card a GPU. */
struct wire { double a, bw; };
static const struct wire inside = { 10, 380e3 }, between = { 20, 45e3 };
static const double HV = 32, K = 128, V = 128, rate = 10e6;   /* rate: flop/us, fp32 */
static const double main_ns = 1.0, sum_ns = 0.6;              /* a token-head */

static double B(void) { return 4 * HV * K * V; }
static double BM(void) { return 4 * HV * K * K; }
static double t_MS(void) { return 2 * HV * K * K * V / rate; }
static double t_MM(void) { return 2 * HV * K * K * (V + K) / rate; }

/* When the last of R ranks knows its state; every rank is ready at 0. share: a rank
 * carries 1/share of the heads. */
static double gather(struct wire w, int R)
{
    return R < 2 ? 0 : w.a + (R - 1) * (B() + BM()) / w.bw + (R > 2 ? R - 2 : 0) * t_MS();
}

static double chain(struct wire w, int R, int blocks)
{
    double last = 0, ready[64] = { 0 };
    for (int r = 1; r < R; r++) {
        double unit = 0, wire = 0;
        for (int b = 0; b < blocks; b++) {
            const double sent = fmax(ready[b], wire);
            wire = sent + B() / blocks / w.bw;
            ready[b] = fmax(wire + w.a, unit);
            if (r + 1 < R)
                unit = ready[b] += t_MS() / blocks;
        }
        last = ready[blocks - 1];
    }
    return last;
}

static double scan(struct wire w, int R, double share)
{
    static double W[4096], next[4096];
    double last = 0;
    for (int r = 0; r < R; r++)
        W[r] = 0;
    for (int d = 1; d < R; d *= 2) {
        for (int r = 0; r < R; r++) {
            next[r] = W[r];
            if (r < d)
                continue;
            const double here = fmax(W[r - d] + w.a + (B() + BM()) / share / w.bw, W[r]);
            next[r] = here + (2 * d <= R - 1 - r) * t_MM() / share + (d > 1) * t_MM() / share;
            last = fmax(last, next[r]);
        }
        for (int r = 0; r < R; r++)
            W[r] = next[r];
    }
    return last;
}

/* Inside each of R / g nodes, then between them by 1/g of the heads a GPU, then one
 * state a GPU and its application. */
static double two_levels(int R, int g)
{
    if (R <= g)
        return scan(inside, R, 1);
    return scan(inside, g, 1) + scan(between, R / g, g) + inside.a + B() / inside.bw + t_MS();
}

static void floors(void)
{
    static const struct { const char *name; double th; } at[] = {
        { "T = 8192, 96 heads", 8192.0 * 96 }, { "T = 65536, 32 heads", 65536.0 * 32 } };
    const double D = 128, C = 64, copy = 4.3e12, tensor = 790e12;
    const double flop = 6 * D * D + 8 * C * D + 4.0 / 3 * C * C, bytes = 5 * D * 2 + 2;
    printf("== 17-floors\nbytes/th %.0f, operations/th %.0f; a copy of %.1f TB/s, products of %.0f TFLOP/s\n\n",
           bytes, flop, copy / 1e12, tensor / 1e12);
    printf("case                   token-heads   by bytes, ms   by operations, ms   links in series\n");
    for (int i = 0; i < 2; i++)
        printf("%-20s %13.0f %14.3f %19.3f %17.0f\n", at[i].name, at[i].th,
               at[i].th * bytes / copy * 1e3, at[i].th * flop / tensor * 1e3,
               i ? 65536 / C : 8192 / C);
}

static void forms(const char *name, struct wire w)
{
    printf("%s: %.0f us a message, %.0f GB/s; microseconds until the last rank has its state\n",
           name, w.a, w.bw / 1e3);
    printf("  R   all-gather       chain   pipelined x8        scan\n");
    for (int R = 2; R <= 64; R *= 2)
        printf("%3d %12.0f %11.0f %14.0f %11.0f\n", R, gather(w, R), chain(w, R, 1),
               chain(w, R, 8), scan(w, R, 1));
}

int main(void)
{
    const double tokens = 1 << 20;
    floors();
    printf("== 19-forms\n%.0f heads, K = V = %.0f, single precision: %.0f MiB of states and as much of matrices;\n"
           "applying a map takes %.1f us and composing two %.1f us at %.0f TFLOP/s\n\n", HV, K,
           B() / 1048576, t_MS(), t_MM(), rate / 1e6);
    forms("inside a node", inside);
    printf("\n");
    forms("between nodes", between);
    printf("== 19-levels\n%.0f tokens of one sequence, %.0f heads; %.1f ns a token-head for the main pass and %.1f for\n"
           "the map's; nodes of 8 GPUs; times in ms\n\n", tokens, HV, main_ns, sum_ns);
    printf("   R   tokens/rank     main      map   one level   two levels    total   efficiency\n");
    for (int i = 0; i < 10; i++) {
        static const int ranks[] = { 1, 2, 4, 8, 32, 64, 128, 512, 1024, 4096 };
        const int R = ranks[i];
        const double th = tokens / R * HV, all = tokens * HV * main_ns * 1e-6;
        const double t_main = th * main_ns * 1e-6, t_sum = R > 1 ? th * sum_ns * 1e-6 : 0;
        const double one = scan(R > 8 ? between : inside, R, 1) * 1e-3, two = two_levels(R, 8) * 1e-3;
        const double total = t_main + t_sum + two;
        printf("%4d %13.0f %8.3f %8.3f %11.3f %12.3f %8.3f %10.0f %%\n", R, tokens / R, t_main,
               t_sum, one, two, total, 100 * all / (R * total));
    }
    return 0;
}
