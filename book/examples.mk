# examples.mk -- two programs to copy: KDA and GDN over ranks, through layer.h alone.

examples := $(patsubst book/examples/%.c,$B/%,$(wildcard book/examples/kda.c book/examples/gdn.c))
.PHONY: examples
examples: $(examples)
$(examples): $B/%: $B/book/examples/%.o $(call obj,$(ref) $(comm) $(mpi)) $(cuda_lib_obj)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -o $@
$(examples:$B/%=$B/book/examples/%.o): with_mpi := $(mpi_flags)
$(examples:$B/%=$B/book/examples/%.o): $(mpi_at)
test_needs   += $(examples) $B/libkcp.so
test_needs   += $B/kcp-check
test_scripts += tests/cli/examples.sh tests/cli/install.sh tests/cli/plugins.sh \
                tests/cli/flashinfer.sh
