// h0.rs -- the same in Rust: rustc --crate-type cdylib -O h0.rs -o h0.so
// Book: CONTRIBUTING.md, "Kernels written elsewhere".
// Structs are kcp.h's; n: the ints that
// open one, N, NS, NC, R, r, H, HV, K, V, C, KG, D, Wc, model, pass and so on.
use std::{os::raw::c_char, ptr::{copy, null, write_bytes}};
#[repr(C)] pub struct H0 {
    t: i64, n: [i32; 31], rest: [usize; 8], h_in: *const f64, h_start: *const f64,
    kept: *mut f64, kept_in: *const f64, back: *mut f64 }
#[repr(C)]
pub struct Variant {
    words: [*const c_char; 3], storage: i32, place: i32, shapes: *const c_char,
    run: extern "C" fn(&H0) -> i32, work: usize, types: i32, run_many: usize }
unsafe impl Sync for Variant {}
extern "C" fn run(a: &H0) -> i32 {
    let (ns, state) = (a.n[1] as usize, (a.n[6] * a.n[7] * a.n[8]) as usize);
    unsafe {
        if ns == 0 { return 0; }
        if a.n[14] == 0 { copy(a.h_in, a.kept, state); return 0; }
        write_bytes(a.back, 0, ns * state);
        if a.h_start != null() { copy(a.h_start, a.back, ns * state); }
        copy(a.kept_in, a.back, state);
    }
    0
}
const fn c(s: &str) -> *const c_char { s.as_ptr() as *const c_char }
#[no_mangle]
pub static kcp_variant: &Variant = &Variant {
    words: [c("12_h0\0"), c("from_rust\0"), c("copies\0")], storage: 0, place: 0,
    shapes: c("any shape\0"), run, work: 0, types: 0, run_many: 0 };
