// inputs of one head (raw), records in double, gradients in double by the token recurrence
typedef std::vector<double> vd;
static uint16_t bf_bits(double x) { float f = (float)x; uint32_t u; memcpy(&u, &f, 4); u += 0x7fff + (u >> 16 & 1); return u >> 16; }
static double bf_val(uint16_t v) { uint32_t u = (uint32_t)v << 16; float f; memcpy(&f, &u, 4); return f; }
static double bfr_(double x) { return bf_val(bf_bits(x)); }
struct rng { uint64_t s; double u() { s = s * 6364136223846793005ull + 1442695040888963407ull; return ((s >> 11) + 0.5) / 9007199254740992.0; }
             double n() { return sqrt(-2 * log(u())) * cos(6.283185307179586 * u()); } };
enum { RQ, RK, RX, RO };
struct head {
    int T; double A, scale; int l2; vd q, k, v, x, dO, braw, dt, h0, dht;
    vd dq, dk, dv, dx, db, dh0, ddt; double dA; std::vector<uint16_t> rows[4]; std::vector<unsigned char> rec;
};
static const int RB = 45568;
static void make_head(head &a, int T, int regime, uint64_t seed)
{
    rng r = { seed * 7919 + 17 };
    for (int i = 0; i < 50; i++) r.u();
    a.T = T; a.l2 = 1; a.scale = 1 / sqrt(128.);
    const int N = T * 128, NC = (T + 31) / 32;
    for (vd *p : { &a.q, &a.k, &a.v, &a.x, &a.dO, &a.dq, &a.dk, &a.dv, &a.dx }) p->assign(N, 0.0);
    a.braw.assign(T, 0.0); a.db.assign(T, 0.0); a.dt.assign(128, 0); a.ddt.assign(128, 0); a.h0.assign(16384, 0); a.dht.assign(16384, 0); a.dA = 0;
    a.A = (float)(0.3 * r.n());
    for (double &y : a.dt) y = (float)(0.3 * r.n());
    for (double &y : a.h0) y = (float)(0.3 * r.n());
    for (double &y : a.dht) y = (float)(0.3 * r.n());
    vd g(N), Q(N), K(N), b(T), sg(N), z(N), rq(T), rk(T);
    const double eA = exp(a.A);
    for (int t = 0; t < T; t++) {
        double sq = 1e-6, sk = 1e-6;
        for (int d = 0; d < 128; d++) { const int i = t * 128 + d; a.q[i] = bfr_(r.n()); a.k[i] = bfr_(2 * r.n()); sq += a.q[i] * a.q[i]; sk += a.k[i] * a.k[i]; }
        rq[t] = 1 / sqrt(sq); rk[t] = 1 / sqrt(sk);
        for (int d = 0; d < 128; d++) {
            const int i = t * 128 + d;
            Q[i] = a.q[i] * rq[t] * a.scale; K[i] = a.k[i] * rk[t]; a.v[i] = bfr_(r.n()); a.dO[i] = bfr_(r.n());
            const double m = regime == 0 ? -3.5 + r.n() : regime == 1 ? 8 + r.n() : regime == 2 ? -10 + r.n() : regime == 3 ? (r.u() < .5 ? 7 : -7) : r.n();
            a.x[i] = bfr_(m / eA); z[i] = eA * (a.x[i] + a.dt[d]); sg[i] = 1 / (1 + exp(-z[i])); g[i] = -5 * sg[i];
        }
        a.braw[t] = bfr_(r.n()); b[t] = 1 / (1 + exp(-a.braw[t]));
    }
    const vd *from[4] = { &a.q, &a.k, &a.x, &a.dO };
    for (int j = 0; j < 4; j++) { a.rows[j].resize(N); for (int i = 0; i < N; i++) a.rows[j][i] = bf_bits((*from[j])[i]); }
    a.rec.assign((size_t)NC * RB, 0);
    vd S = a.h0, e(N), start((size_t)NC * 16384);
    for (int t = 0; t < T; t++) {
        if (t % 32 == 0) {
            const int c = t / 32, len = std::min(32, T - t);
            unsigned char *rec = &a.rec[(size_t)c * RB];
            std::copy(S.begin(), S.end(), start.begin() + (size_t)c * 16384);
            std::vector<double> G(32 * 128), L(1024, 0.0), P(1024, 0.0), A(1024, 0.0), f(32 * 128), fb(32 * 128);
            for (int i = 0; i < 32; i++) for (int d = 0; d < 128; d++) G[i * 128 + d] = (i ? G[(i - 1) * 128 + d] : 0) + (i < len ? g[(t + i) * 128 + d] : 0);
            for (int k = 0; k < 128; k++) for (int v = 0; v < 128; v++) {
                const uint16_t y = bf_bits(S[k * 128 + v] * exp(G[15 * 128 + k]));
                memcpy(rec + (k / 8 * 16 + v / 8) * 128 + v % 8 * 16 + k % 8 * 2, &y, 2);
            }
            for (int i = 0; i < 32 * 128; i++) { const double an = G[15 * 128 + i % 128]; f[i] = exp(G[i] - an); fb[i] = exp(an - G[i]); }
            for (int i = 0; i < len; i++) for (int j = 0; j <= i; j++) {
                double s = 0, u = 0;
                for (int d = 0; d < 128; d++) { const double y = f[i * 128 + d] * fb[j * 128 + d] * a.k[(t + j) * 128 + d]; s += Q[(t + i) * 128 + d] * y; u += K[(t + i) * 128 + d] * y * rk[t + j]; }
                P[i * 32 + j] = s; if (j < i) L[i * 32 + j] = b[t + i] * u;
            }
            for (int j = 0; j < len; j++) for (int i = j; i < len; i++) { double y = i == j; for (int l = j; l < i; l++) y -= L[i * 32 + l] * A[l * 32 + j]; A[i * 32 + j] = y; }
            for (int i = 0; i < len; i++) for (int j = 0; j <= i; j++) {
                const int at = i * 64 + (((j / 8) ^ (i >> 1 & 3)) << 4) + j % 8 * 2;
                const uint16_t y = bf_bits(rk[t + i] * A[i * 32 + j] * b[t + j]), u = bf_bits(P[i * 32 + j]);
                memcpy(rec + 40960 + at, &y, 2); memcpy(rec + 43008 + at, &u, 2);
            }
            for (int i = 0; i < 32; i++) {
                const float y[3] = { i < len ? (float)(rq[t + i] * a.scale) : 1000.f, i < len ? (float)rk[t + i] : 1000.f, i < len ? (float)b[t + i] : 0.f };
                for (int j = 0; j < 3; j++) memcpy(rec + 45056 + 128 * j + 4 * i, &y[j], 4);
            }
        }
        const double *k = &K[t * 128];
        double y[128];
        for (int j = 0; j < 128; j++) y[j] = a.v[t * 128 + j];
        for (int i = 0; i < 128; i++) { double *R = &S[i * 128]; const double F = exp(g[t * 128 + i]), kk = k[i]; for (int j = 0; j < 128; j++) { R[j] *= F; y[j] -= kk * R[j]; } }
        const int i32 = t % 32;
        for (int j = 0; j < 128; j++) {
            e[t * 128 + j] = y[j];
            const uint16_t w = bf_bits(rk[t] * b[t] * y[j]);
            memcpy(&a.rec[(size_t)(t / 32) * RB + 32768 + (i32 / 8 * 16 + j / 8) * 128 + j % 8 * 16 + i32 % 8 * 2], &w, 2);
        }
        for (int i = 0; i < 128; i++) { double *R = &S[i * 128]; const double kk = k[i] * b[t]; for (int j = 0; j < 128; j++) R[j] += kk * y[j]; }
    }
    vd dS = a.dht, st((size_t)33 * 16384);
    for (int c = NC - 1; c >= 0; c--) {
        const int len = std::min(32, T - 32 * c);
        std::copy(start.begin() + (size_t)c * 16384, start.begin() + (size_t)(c + 1) * 16384, st.begin());
        for (int i = 0; i < len; i++) {
            const int t = c * 32 + i;
            for (int d = 0; d < 128; d++) {
                const double f = exp(g[t * 128 + d]), kk = K[t * 128 + d] * b[t], *R = &st[(size_t)i * 16384 + d * 128], *y = &e[t * 128]; double *N_ = &st[(size_t)(i + 1) * 16384 + d * 128];
                for (int j = 0; j < 128; j++) N_[j] = f * R[j] + kk * y[j];
            }
        }
        for (int i = len - 1; i >= 0; i--) {
            const int t = c * 32 + i;
            const double *q = &Q[t * 128], *k = &K[t * 128], *y = &e[t * 128], *o = &a.dO[t * 128], bt = b[t];
            double de[128] = {}, ye = 0, dq[128], dk[128];
            for (int d = 0; d < 128; d++) {
                double *D = &dS[d * 128], s = 0, u = 0; const double *R = &st[(size_t)(i + 1) * 16384 + d * 128];
                for (int j = 0; j < 128; j++) { D[j] += q[d] * o[j]; s += R[j] * o[j]; u += D[j] * y[j]; de[j] += bt * D[j] * k[d]; }
                dq[d] = s; dk[d] = bt * u; ye += k[d] * u;
            }
            a.db[t] = ye * bt * (1 - bt);
            for (int j = 0; j < 128; j++) a.dv[t * 128 + j] = de[j];
            for (int d = 0; d < 128; d++) {
                const double f = exp(g[t * 128 + d]); double *D = &dS[d * 128], s = 0, u = 0; const double *R = &st[(size_t)i * 16384 + d * 128];
                for (int j = 0; j < 128; j++) { D[j] -= k[d] * de[j]; s += f * R[j] * de[j]; u += D[j] * f * R[j]; D[j] *= f; }
                dk[d] -= s;
                const double dx = u * -5 * sg[t * 128 + d] * (1 - sg[t * 128 + d]) * eA;
                a.dx[t * 128 + d] = dx; a.ddt[d] += dx; a.dA += dx * (a.x[t * 128 + d] + a.dt[d]);
            }
            double cq = 0, ck = 0;
            for (int d = 0; d < 128; d++) { dq[d] *= a.scale; cq += dq[d] * a.q[t * 128 + d] * rq[t]; ck += dk[d] * K[t * 128 + d]; }
            for (int d = 0; d < 128; d++) {
                a.dq[t * 128 + d] = rq[t] * (dq[d] - a.q[t * 128 + d] * rq[t] * cq);
                a.dk[t * 128 + d] = rk[t] * (dk[d] - K[t * 128 + d] * ck);
            }
        }
    }
    a.dh0 = dS;
}
static double rel(const vd &ref, const std::vector<double> &y)
{ double a = 0, b = 0; for (size_t i = 0; i < ref.size(); i++) { a += (y[i] - ref[i]) * (y[i] - ref[i]); b += ref[i] * ref[i]; } return sqrt(a / b); }
