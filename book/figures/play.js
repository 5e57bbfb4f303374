// play.js -- the sliders of the interactive figure of chapter 06.
//
// Book: chapter 06.
// All numbers and pictures come from play.c, which compute.mk compiles to WebAssembly.
// PROGRAM: a constant `program`, the WebAssembly module as base64, is inserted here
(async () => {
    const box = document.currentScript.previousElementSibling, set = { R: 4, skew: 0, gate: 5 };
    // The program makes no system call. If it did, it would get error 52, ENOSYS.
    const system = new Proxy({}, { get: () => () => 52 });
    const bytes = Uint8Array.from(atob(program), c => c.charCodeAt(0));
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: system });
    const wasm = instance.exports, picture = document.createElement("div");
    wasm._initialize();
    function draw() {
        const at = wasm.play_draw(set.R, set.skew, set.gate), memory = new Uint8Array(wasm.memory.buffer);
        picture.innerHTML = new TextDecoder().decode(memory.subarray(at, memory.indexOf(0, at)));
    }
    box.textContent = "";
    box.append(picture);
    for (const [name, min, max, step, label] of [["R", 1, 8, 1, "ranks"],
        ["skew", -2, 2, 0.25, "place of the cuts"], ["gate", 0, 13, 0.5, "strength of the gate"]]) {
        const line = document.createElement("label"), words = document.createElement("span"), input = document.createElement("input");
        words.textContent = label;
        Object.assign(input, { type: "range", min, max, step, value: set[name] });
        input.oninput = () => { set[name] = +input.value; draw(); };
        line.append(words, input);
        box.append(line);
    }
    draw();
})();
