# stand_in.mk -- the NCCL backend on CPUs: comm/backend/nccl*.c over substitutes for CUDA's
# runtime and NCCL, with separate headers. Neither CUDA nor NCCL is needed.

stand_in      := tests/20_clusters/stand_in
stand_in_nccl := $(patsubst %.c,$B/stand_in/%.o,$(wildcard comm/backend/nccl*.c) \
                   $(addprefix $(stand_in)/,gpu.c late.c lose.c ranks.c) \
                   cuda/host/blocks.c tests/20_clusters/nccl.c)
stand_in_rest := $(filter-out comm/backend/nccl%,$(ref) $(base) $(comm)) \
                 tests/07_merge/checks.c $(addprefix tests/judge/,exchange_trials.c \
                   hooks.c inputs.c memory.c ranks.c report.c)
stand_in_rest := $(patsubst %.c,$B/$(if $(filter none,$(CUDA_HOME)),,stand_in/)%.o,\
                   $(stand_in_rest))
stand_in_at   := $(if $(flags_at),$(call kept,made.stand_in,$(CFLAGS)))

$B/stand_in/%.o: %.c $(stand_in_at)
	@mkdir -p $(@D)
	@echo "  cc $< over the stand-ins"
	@$(CC) -I$(stand_in) $(CFLAGS) -DKCP_WITH_NCCL -MMD -MP -c $< -o $@
$B/stand_in/$(stand_in)/libnccl.o $B/stand_in/$(stand_in)/cudart.o: CFLAGS += -fvisibility=default
$B/stand_in/libnccl.so.2: $(patsubst %,$B/stand_in/$(stand_in)/%.o,libnccl cudart)
	@$(CC) $(LDFLAGS) -shared -Wl,-soname,libnccl.so.2 $^ -lpthread -o $@
$B/stand_in/kcp-stand-in: $(stand_in_rest) $(call obj,$(mpi)) $(stand_in_nccl) \
                          $B/stand_in/libnccl.so.2 $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o %.so.2,$^) -lpthread -lm -ldl $(mpi_libs) -o $@

test_needs   += $B/stand_in/kcp-stand-in
test_scripts += tests/cli/nccl_stand_in.sh
