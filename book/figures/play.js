// play.js -- the sliders of the interactive figures of chapters 06 and 07.
// Book: chapters 06 and 07. FIGURE is the number of the figure (book/compute.mk).
// All numbers and pictures come from play.c, which compute.mk compiles to WebAssembly.
// PROGRAM: a constant `program`, the WebAssembly module as base64, is inserted here
(async () => {
    const box = document.currentScript.previousElementSibling, set = [];
    // The program makes no system call. If it did, it would get error 52, ENOSYS.
    const system = new Proxy({}, { get: () => () => 52 });
    const bytes = Uint8Array.from(atob(program), c => c.charCodeAt(0));
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: system });
    const wasm = instance.exports, picture = document.createElement("div");
    wasm._initialize();
    const text = at => {
        const memory = new Uint8Array(wasm.memory.buffer);
        return new TextDecoder().decode(memory.subarray(at, memory.indexOf(0, at)));
    };
    const draw = () => { picture.innerHTML = text(wasm.play_draw(FIGURE, ...set)); };
    box.textContent = "";
    box.append(picture);
    text(wasm.play_sliders(FIGURE)).split("; ").forEach((slider, i) => {
        const line = document.createElement("label"), words = document.createElement("span"), input = document.createElement("input");
        const [name, min, max, step, value] = slider.split(", ");
        words.textContent = name;
        Object.assign(input, { type: "range", min, max, step, value });
        set[i] = +value;
        input.oninput = () => { set[i] = +input.value; draw(); };
        line.append(words, input);
        box.append(line);
    });
    draw();
})();
