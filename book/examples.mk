# examples.mk -- builds kda and gdn, examples of KDA and GDN that use only layer.h.

examples := $B/kda $B/gdn
.PHONY: examples
examples: $(examples)
$(examples): $B/%: $B/book/examples/%.o $(call obj,$(ref) $(comm) $(mpi)) $(cuda_lib_obj)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -o $@
$(examples:$B/%=$B/book/examples/%.o): with_mpi := $(mpi_flags) -Icomm/backend
$(examples:$B/%=$B/book/examples/%.o): $(mpi_at)
$B/book/examples/gdn.o: book/examples/kda.c
	@mkdir -p $(@D)
	@echo "  cc book/examples/kda.c -DGDN"
	@$(CC) $(CFLAGS) -DGDN $(with_mpi) $(cuda_cflags) -MMD -MP -c $< -o $@
test_needs   += $(examples) $B/libkcp.so
test_needs   += $B/kcp-check
test_scripts += tests/cli/examples.sh tests/cli/install.sh tests/cli/plugins.sh \
                tests/cli/flashinfer.sh
