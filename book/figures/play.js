// play.js -- draws the interactive figure of chapter 06. Sliders set ranks, cuts and
// gate, which change the plan and the survival curve.
//
// Book: chapter 06.
// The plan follows the rule of kcp_plan_make. The curve is |M|_F / sqrt(K) of the map
// from the start of sequence 1 to each token. K = 16; the random unit keys are fixed.
(() => {
    const box = document.currentScript.previousElementSibling;
    const cu = [0, 90, 400, 460, 512], T = 512, K = 16, W = 640, X = t => 10 + t * (W - 20) / T;
    const wash = ["a", "b", "c", "d"];
    const set = { R: 4, skew: 0, gate: 5 };

    let seed = 1;
    const uniform = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(6.283185307 * uniform());
    const tokens = Array.from({ length: T }, () => {
        const k = Array.from({ length: K }, normal), n = Math.hypot(...k);
        return { k: k.map(x => x / n), z: Array.from({ length: K }, () => Math.abs(normal())), beta: 1 / (1 + Math.exp(3 - normal())) };
    });

    const cuts = () => Array.from({ length: set.R + 1 }, (_, r) => Math.round(T * Math.pow(r / set.R, Math.pow(2, set.skew))));

    function segments(c) {
        const out = [];
        for (let n = 0, r = 0; n + 1 < cu.length; n++)
            for (let t = cu[n], end; t < cu[n + 1]; t = end) {
                while (c[r + 1] <= t) r++;
                end = Math.min(cu[n + 1], c[r + 1]);
                out.push({ n, r, t, end, first: t === cu[n], last: end === cu[n + 1] });
            }
        return out;
    }

    function survival() {
        const M = Array.from({ length: K }, (_, i) => Float64Array.from({ length: K }, (_, p) => +(i === p)));
        const strength = set.gate ? Math.pow(2, set.gate - 13) : 0, out = [1];
        for (let t = cu[1]; t < cu[2]; t++) {
            const { k, z, beta } = tokens[t], row = new Float64Array(K);
            let size = 0;
            for (let i = 0; i < K; i++)
                for (let p = 0; p < K; p++) row[p] += k[i] * (M[i][p] *= Math.exp(-strength * z[i]));
            for (let i = 0; i < K; i++)
                for (let p = 0; p < K; p++) size += (M[i][p] -= beta * k[i] * row[p]) ** 2;
            out.push(Math.sqrt(size / K));
        }
        return out;
    }

    const rect = (x, y, w, h, s) => `<rect x="${x}" y="${y}" width="${Math.max(w, 0)}" height="${h}" style="${s}"/>`;
    const text = (x, y, s, c = "", a = "middle") => `<text x="${x}" y="${y}" text-anchor="${a}" class="${c}">${s}</text>`;

    function draw() {
        const c = cuts(), seg = segments(c), alive = survival(), Y = a => 120 + Math.min(150, -18 * Math.log10(Math.max(a, 1e-9)));
        let s = "", maps = 0, matrices = 0;
        for (const g of seg) {
            s += rect(X(g.t), 30, X(g.end) - X(g.t), 30, `fill:var(--wash-${wash[g.n]});stroke:var(--${wash[g.n]})`);
            if (!g.last) maps++;
            if (!g.first && !g.last) { matrices++; s += text((X(g.t) + X(g.end)) / 2, 50, "M"); }
            if (!g.last) s += `<path d="M${X(g.end) - 8} 68h16m-5 -4l5 4l-5 4" style="fill:none;stroke:var(--${wash[g.n]});stroke-width:1.5"/>`;
        }
        for (let r = 0; r <= set.R; r++) {
            if (r && r < set.R) s += `<line x1="${X(c[r])}" y1="24" x2="${X(c[r])}" y2="272" style="stroke:var(--ink);stroke-dasharray:3 3;opacity:.5"/>`;
            if (r < set.R && X(c[r + 1]) - X(c[r]) > 14) s += text((X(c[r]) + X(c[r + 1])) / 2, 18, X(c[r + 1]) - X(c[r]) > 50 ? "rank " + r : r, "soft");
        }
        for (const e of [0, 2, 4, 6, 8]) s += `<line x1="10" y1="${120 + 18 * e}" x2="${W - 10}" y2="${120 + 18 * e}" style="stroke:var(--line)"/>` + text(14, 116 + 18 * e, e ? "1e-" + e : "1", "soft", "start");
        s += `<polyline points="${alive.map((a, i) => X(cu[1] + i).toFixed(1) + "," + Y(a).toFixed(1)).join(" ")}" style="fill:none;stroke:var(--b);stroke-width:2"/>`;
        const last = alive[alive.length - 1];
        picture.innerHTML = `<svg viewBox="0 0 ${W} 290" role="img"><title>The plan and the survival of sequence 1</title>${s}${text(14, 286, "what is alive of the state with which sequence 1 begins", "soft", "start")}</svg>`;
        said.textContent = `${maps} cut${maps === 1 ? "" : "s"} carr${maps === 1 ? "ies" : "y"} a state; ${matrices} segment${matrices === 1 ? "" : "s"} must send M as well; ` +
            `at the end of sequence 1, ${last < 1e-8 ? "nothing" : last.toExponential(1)} of its first state is alive` + (last < 1e-6 && matrices ? ": no test could detect a wrong M." : ".");
    }

    function slider(name, min, max, step, label, show) {
        const l = document.createElement("label"), o = document.createElement("output"), i = document.createElement("input");
        const name_ = document.createElement("span");
        name_.textContent = label;
        Object.assign(i, { type: "range", min, max, step, value: set[name] });
        i.oninput = () => { set[name] = +i.value; o.textContent = show(set[name]); draw(); };
        o.textContent = show(set[name]);
        l.append(name_, i, o);
        box.append(l);
    }

    box.textContent = "";
    const picture = document.createElement("div"), said = document.createElement("p");
    picture.className = "scroll";
    said.className = "caption";
    said.setAttribute("aria-live", "polite");
    box.append(picture);
    slider("R", 1, 8, 1, "ranks", v => v);
    slider("skew", -2, 2, 0.25, "cuts: early or late", v => v === 0 ? "even" : v < 0 ? "late shards short" : "early shards short");
    slider("gate", 0, 13, 0.5, "strength of the gate", v => v ? "mean " + (0.8 * Math.pow(2, v - 13)).toPrecision(1) : "none");
    box.append(said);
    draw();
})();
