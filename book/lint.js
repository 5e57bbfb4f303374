// lint.js -- checks every page of the book in Chromium, at several widths.
//
// Run by `make book-lint`, once light and once dark. Each page is loaded
// in a frame of the given width, with all folded parts open. The report is written into
// the document, where lint.sh reads it.
const report = [];
const pages = PAGES;
const luminance = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const rgb = s => { const m = s.match(/[\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m; };

function contrast(w, e) {
    const ink = rgb(w.getComputedStyle(e).color);
    let paper = null;
    for (let p = e; p && !paper; p = p.parentElement) paper = rgb(w.getComputedStyle(p).backgroundColor);
    if (!ink || !paper) return 21;
    const [a, b] = [luminance(ink), luminance(paper)].sort((x, y) => y - x);
    return (a + .05) / (b + .05);
}

// Returns the contrast of a figure's text with the shapes drawn before and under the text.
function contrast_in_figure(w, t) {
    const r = t.getBoundingClientRect(), x = (r.left + r.right) / 2, y = (r.top + r.bottom) / 2;
    let paper = rgb(w.getComputedStyle(w.document.documentElement).backgroundColor);
    for (const e of t.closest("svg").querySelectorAll("rect, circle")) {
        if (!(e.compareDocumentPosition(t) & 4)) break;
        const b = e.getBoundingClientRect(), s = w.getComputedStyle(e);
        if (x < b.left || x > b.right || y < b.top || y > b.bottom || s.fill === "none") continue;
        const fill = rgb(s.fill), a = s.fillOpacity * s.opacity * (fill && fill.length > 3 ? fill[3] : 1);
        if (fill) paper = paper.map((v, i) => a * fill[i] + (1 - a) * v);
    }
    const [a, b] = [luminance(rgb(w.getComputedStyle(t).fill)), luminance(paper)].sort((p, q) => q - p);
    return (a + .05) / (b + .05);
}

function look(w, name, width) {
    const d = w.document, say = s => report.push(`${name} ${width}: ${s}`);
    const over = d.documentElement.scrollWidth - d.documentElement.clientWidth;
    if (over > 1) {
        const who = [...d.querySelectorAll("main *")].find(e => e.getBoundingClientRect().right > width + 1 && !e.closest("pre, .equation, .scroll, svg, table"));
        say(`the page is ${over} px too wide: ${who ? who.tagName + " " + who.className + " " + who.textContent.slice(0, 40) : "?"}`);
    }
    const cut = [...d.querySelectorAll("main *")].find(e => e.getBoundingClientRect().left < -1 && !e.closest("svg, math"));
    if (cut) say(`begins left of the page: ${cut.tagName} ${cut.className} ${cut.textContent.slice(0, 40)}`);
    for (const e of d.querySelectorAll(".equation > p")) if (e.scrollWidth > e.clientWidth + 1) say(`equation ${e.parentElement.id} is ${e.scrollWidth - e.clientWidth} px too wide`);
    // Finds signs of a formula that the paragraph's box cuts, and rules shorter than their terms.
    for (const p of d.querySelectorAll(".equation > p")) {
        const box = p.getBoundingClientRect();
        for (const e of p.querySelectorAll("mi, mo, mn, mtext, munder.named > :first-child")) {
            const r = e.getBoundingClientRect(), out = Math.max(box.top - r.top, r.bottom - box.bottom);
            if (r.width && out > .5) { say(`equation ${p.parentElement.id} is cut by ${out.toFixed(1)} px at ${e.textContent.slice(0, 20)}`); break; }
        }
        for (const e of p.querySelectorAll("munder.named > :first-child")) {
            const r = e.getBoundingClientRect(), border = parseFloat(w.getComputedStyle(e).borderBottomWidth);
            const inner = [...e.querySelectorAll("mi, mo, mn")].map(x => x.getBoundingClientRect());
            const left = Math.min(...inner.map(x => x.left)), right = Math.max(...inner.map(x => x.right));
            if (!(border > 0) || r.left > left + 1 || r.right < right - 1) say(`equation ${p.parentElement.id}: the rule is not as wide as its term ${e.textContent.slice(0, 20)}`);
        }
    }
    for (const e of d.querySelectorAll("mo")) if (/[\u23DE\u23DF]/.test(e.textContent)) say("a brace that a browser would have to stretch");
    if (width > 800) for (const e of d.querySelectorAll("pre")) if (e.scrollWidth > e.clientWidth + 1) say(`code is ${e.scrollWidth - e.clientWidth} px too wide: ${e.textContent.slice(0, 50)}`);
    for (const e of d.querySelectorAll("span.math")) say(`raw TeX: ${e.textContent.slice(0, 60)}`);
    for (const e of d.querySelectorAll("p, li, td, figcaption, .caption")) if (/\$[^$]+\$|\\[a-z]{3,}\b/.test([...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(""))) say(`raw TeX in text: ${e.textContent.slice(0, 60)}`);
    for (const e of d.querySelectorAll("p, a, code, td, th, h1, pre span, .caption, svg text")) {
        const r = e.closest("svg") ? 21 : contrast(w, e);
        if (r < 4.5) { say(`contrast ${r.toFixed(1)}: ${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`); break; }
    }
    for (const t of d.querySelectorAll(".figure svg text")) {
        const r = contrast_in_figure(w, t);
        if (r < 4.5) say(`contrast ${r.toFixed(1)} in ${t.closest(".figure").id}: ${t.textContent.slice(0, 30)}`);
    }
    for (const e of d.querySelectorAll("svg")) if (!e.querySelector("title") && !e.getAttribute("aria-label") && !e.getAttribute("aria-hidden")) say("a figure without text alternative");
    for (const a of d.querySelectorAll("a[href]")) {
        const h = a.getAttribute("href");
        if (/^https?:/.test(h)) continue;
        const [file, id] = h.split("#");
        if (!file && id && !d.getElementById(decodeURIComponent(id))) say(`dead anchor #${id}`);
    }
    for (const e of d.querySelectorAll("[src], link[href]")) if (!/^data:/.test(e.getAttribute("src") || e.getAttribute("href"))) say(`not self-contained: ${e.outerHTML.slice(0, 60)}`);
}

(async () => {
    for (const [name, width] of pages) {
        const f = document.createElement("iframe");
        f.style.cssText = `width:${width}px;height:900px;border:0`;
        await new Promise(done => { f.onload = done; f.src = name; document.body.append(f); });
        await f.contentDocument.fonts.ready;
        for (const e of f.contentDocument.querySelectorAll("details")) e.open = true;
        look(f.contentWindow, name, width);
        f.remove();
    }
    document.body.innerHTML = "<pre id=lint></pre>";
    document.getElementById("lint").textContent = "LINT BEGIN\n" + report.join("\n") + `\nLINT END ${pages.length} views`;
})();
