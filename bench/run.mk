# run.mk -- kcp-run: the layer, or one stage, on arrays in .npy files.

run_obj := $(call obj,$(wildcard bench/run*.c) $(wildcard tests/npy*.c))

$(run_obj): bench/run.h
$B/kcp-run: $(call obj,$(ref) $(comm)) $(run_obj)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $^ -lpthread -lm -o $@
