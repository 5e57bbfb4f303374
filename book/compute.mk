# compute.mk -- compiles the references to WebAssembly, for the book's page "compute" and
# figures of chapters 06 and 07.
#
# Needs clang, lld, wasi-libc and libclang-rt-dev-wasm32; without them both are left out.

wasm_has  := $(and $(shell command -v clang),$(shell command -v wasm-ld),$(wildcard /usr/lib/wasm32-wasi/libc.a),\
               $(shell echo 'int main(void) { return 0; }' | clang --target=wasm32-wasi -x c - -o /dev/null 2>/dev/null && echo yes))
# The forward and backward programs call page_NAME, not ref_NAME (book/compute/mutants.c).
wasm_swap := $(foreach s,gate wy chunk affine chunk_backward wy_backward merge_backward h0,-Dkcp_ref_$s=page_$s)
wasm_src  := $(wildcard book/compute/*.c ref/*.c comm/form/*.c comm/*.c tests/0[23457]_*/mutants.c tests/1[012]_*/mutants.c) \
             $(filter-out ref/core/layer.c ref/core/structs.c ref/core/version.c,$(wildcard ref/core/*.c))
wasm_obj  := $(wasm_src:%.c=$(bk)/wasm/%.o)
$(bk)/wasm/ref/08_forward.o $(bk)/wasm/ref/13_backward.o: private wasm_more := $(wasm_swap)
$(bk)/wasm/%.o: %.c
	@mkdir -p $(@D)
	@clang --target=wasm32-wasi -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -Iref -I. -Ibook/compute $(wasm_more) -MMD -MP -c $< -o $@
-include $(wasm_obj:.o=.d)
$(bk)/page.wasm: $(wasm_obj)
	@clang --target=wasm32-wasi -mexec-model=reactor $^ -o $@ \
	    -Wl,--export=page_run,--export=page_options,--export=page_buffer,--strip-all,-z,stack-size=1048576
# The figures of chapters 06 and 07 have a smaller program.
$(bk)/play.wasm: book/figures/play.c $(addprefix $(bk)/wasm/,ref/01_step.o ref/06_plan.o ref/07_merge.o ref/16_diagonal.o ref/core/registry.o book/compute/draw.o book/compute/ranks.o \
                 $(patsubst %.c,%.o,comm/halo.c comm/segment_sum.c $(wildcard comm/form/*.c)))
	@clang --target=wasm32-wasi -mexec-model=reactor -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -Iref -I. $^ -o $@ \
	    -Wl,--export=play_draw,--export=play_sliders,--strip-all,-z,stack-size=262144
$(bk)/play6.js $(bk)/play7.js: $(bk)/play%.js: book/figures/play.js $(bk)/play.wasm
	@{ sed '/PROGRAM/,$$d' $<; printf 'const FIGURE = $*, program = "'; base64 -w 0 $(bk)/play.wasm; echo '";'; sed '1,/PROGRAM/d' $<; } > $@
$(bk)/06-plan.html: $(if $(wasm_has),$(bk)/play6.js)
$(bk)/07-merge.html: $(if $(wasm_has),$(bk)/play7.js)
# The script of the page, with the program as text.
$(bk)/compute.inc: book/compute/page.js book/compute/page.html $(bk)/page.wasm
	@{ cat book/compute/page.html; echo '<script>'; sed '/PROGRAM/,$$d' $<; printf 'const program = "'; base64 -w 0 $(bk)/page.wasm; echo '";'; \
	   sed '1,/PROGRAM/d' $<; echo '</script>'; } > $@
$(bk)/compute.html: $(bk)/compute.inc
$(bk)/compute.html: private bookmore := --include-after-body $(bk)/compute.inc
test_scripts += tests/cli/compute.sh
