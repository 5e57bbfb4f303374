// drive.js -- uses the page "compute" as a reader does; prints a line per fault.
//
// Run by tests/cli/compute.sh in headless Chromium. The page is in a frame. Each choice
// is made through the page's controls, and the answer is read from the page.
(async () => {
    const faults = [], f = document.createElement("iframe");
    f.style.cssText = "width:1280px;height:900px";
    await new Promise(done => { f.onload = done; f.src = "compute.html"; document.body.append(f); });
    const d = f.contentDocument, wait = () => new Promise(done => setTimeout(done, 20));
    for (let i = 0; i < 500 && !d.body.dataset.shown; i++) await wait();
    const form = d.getElementById("choices"), out = d.getElementById("answer");
    const fault = s => faults.push(s);
    const choose = choices => {
        for (const [name, value] of Object.entries(choices)) {
            const e = form.elements[name];
            e.value = value;
            (e.length && !e.options ? e[0] : e).dispatchEvent(new f.contentWindow.Event("change", { bubbles: true }));
        }
        return out;
    };
    const bad = () => out.querySelectorAll(".bad").length;
    const verdict = () => out.querySelector("#verdict")?.textContent || "";
    const guess = n => {
        const e = out.querySelector(`input[name=guess][value="${n}"]`);
        e.checked = true;
        e.dispatchEvent(new f.contentWindow.Event("change", { bubbles: true }));
    };
    const expect = (what, ok) => { if (!ok) fault(what); };

    expect("no answer", out.querySelectorAll("td.fine").length >= 32);
    for (const form of [0, 1, 2, 3])
        for (const owners of [0, 1, 2])
            for (const model of [0, 1]) {
                choose({ form, owners, model, tokens: 100, sequences: "20,55", ranks: 5, h0: model });
                expect(`form ${form}, owners ${owners}, model ${model}: ${bad()} bad, ${out.querySelectorAll("td.fine").length} fine`,
                    bad() === 0 && out.querySelectorAll("td.fine").length === 45);
            }
    expect("the chain on 4 ranks sends one message in each of 3 steps", (() => {
        choose({ form: 1, owners: 0, model: 0, tokens: 64, sequences: "", ranks: 4, h0: 0 });
        return [...out.querySelectorAll(".steps")].every(s => s.querySelectorAll("circle").length === 3 && /step 3/.test(s.textContent) && !/step 4/.test(s.textContent));
    })());
    expect("the scan on 8 ranks takes 3 steps and 17 messages", (() => {
        choose({ form: 3, ranks: 8 });
        const s = out.querySelector(".steps");
        return s.querySelectorAll("circle").length === 17 && /step 3/.test(s.textContent) && !/step 4/.test(s.textContent);
    })());

    // A mutant is predicted wrongly, then rightly. The number is that of the first check
    // to fail: 1 factors, 2 maps, 3 states, 4 outputs, 5 maps of backward, 6 gradients.
    const found = { mutant_no_chunk: 1, mutant_w_ungated: 1, mutant_decay_first: 4, mutant_last_chunk: 2, mutant_turned: [2, 3],
        mutant_no_M: 3, mutant_base_2: 6, mutant_in_order: 5, mutant_keeps_last: 6 };
    choose({ form: 1, ranks: 4, sequences: "20,45" });
    let turned = 0;
    for (const o of [...form.elements.mutant.options].slice(1)) {
        choose({ mutant: o.value });
        const name = o.textContent.split(" ")[1];
        const right = name === "mutant_turned" ? found[name][turned++] : found[name];
        choose({ tokens: name === "mutant_no_M" || right === 3 ? 64 : 63, sequences: right === 3 ? "" : "20,45" });
        expect(`${name}: the answer is shown before the prediction`, !verdict() && out.querySelectorAll("input[name=guess]").length === 7);
        guess(right === 7 ? 1 : 7);
        expect(`${name}: wrong prediction: ${verdict()}`, /^Wrong/.test(verdict()));
        guess(right);
        expect(`${name}: right prediction ${right}: ${verdict()}`, /^Right/.test(verdict()) && bad() > 0);
        expect(`${name}: the errors without it`, [...out.querySelectorAll("table")].pop().querySelectorAll(".bad").length === 0);
    }
    choose({ mutant: 6, ranks: 2, sequences: "", tokens: 64 });
    guess(7);
    expect(`no M with two ranks: ${verdict()}`, /^Right.*none of them/.test(verdict()));

    for (const [name, value] of [["cuts", "9,5,60"], ["cuts", "1,2"], ["ranks", "9"], ["tokens", "x"], ["sequences", "70,20"]]) {
        choose({ mutant: 0, tokens: 64, ranks: 4, sequences: "", cuts: "" });
        choose({ [name]: value });
        expect(`${name}=${value}: ${out.textContent}`, bad() === 1 && out.children.length === 1);
    }
    document.body.innerHTML = "<pre id=drive></pre>";
    document.getElementById("drive").textContent = ["DRIVE BEGIN", ...faults, "DRIVE END"].join("\n");
})();
