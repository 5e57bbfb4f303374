# run.mk -- builds kcp-run, which runs the layer on arrays in .npy files.

run_obj := $(call obj,$(wildcard bench/run/*.c) $(base) cuda/host/blocks.c)

$B/kcp-run: $(call obj,$(ref) $(comm) $(mpi)) $(run_obj) $(cuda_obj) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -lpthread -lm -ldl $(mpi_libs) $(cuda_ldlibs) -o $@

test_needs   += $B/kcp-run $B/kcp-check
test_scripts += tests/cli/run_cli.sh tests/cli/run_folder.sh tests/cli/run_device.sh
