// page.js -- passes the reader's choices to the compiled references and shows the answer.
// All numbers and pictures come from book/compute/*.c.
// PROGRAM: a constant `program`, the WebAssembly module as base64, is inserted here
(async () => {
    document.getElementById("compute").append(document.getElementById("parts").content);
    const form = document.getElementById("choices"), out = document.getElementById("answer");
    // The program makes no system call. If it did, it would get error 52, ENOSYS.
    const system = new Proxy({}, { get: () => () => 52 });
    const bytes = Uint8Array.from(atob(program), c => c.charCodeAt(0));
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: system });
    const wasm = instance.exports;
    wasm._initialize();
    const text = at => {
        const memory = new Uint8Array(wasm.memory.buffer);
        return new TextDecoder().decode(memory.subarray(at, memory.indexOf(0, at)));
    };
    form.elements.form.innerHTML = text(wasm.page_options(0));
    form.elements.mutant.innerHTML = text(wasm.page_options(1));

    function show(event) {
        const choices = new FormData(form);
        if (!event || event.target.name !== "guess") choices.delete("guess");
        if (!choices.has("guess")) choices.set("guess", 0);
        const query = [...choices].map(([name, value]) => `&${name}=${value}`).join("");
        const at = wasm.page_buffer();
        new Uint8Array(wasm.memory.buffer).set(new TextEncoder().encode(query.slice(0, 400) + "\0"), at);
        out.innerHTML = text(wasm.page_run(at));
        document.body.dataset.shown = Number(document.body.dataset.shown || 0) + 1;
    }
    form.addEventListener("change", show);
    form.addEventListener("submit", event => event.preventDefault());
    show();
})();
