# proxy.mk -- finds missing proxy fences in PTX, and compiles kernels with random sleeps.

ifneq ($(filter sm_90a,$(ARCH)),)
ifneq ($(CUDA_HOME),none)
ptx := $(patsubst %.cu,$B/ptx/%.ptx,$(filter-out cuda/18_hopper/v%,$(hopper)))
$B/ptx/%.ptx: %.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  ptx $<"
	@$(nvcc) $(filter-out -Xptxas -warn-spills,$(NVFLAGS)) \
	  -gencode arch=compute_90a,code=compute_90a -MMD -MP -MF $(@:.ptx=.d) -ptx $< -o $@
# Compiles the sm_90a kernels with random sleeps (cuda/tile/jitter.cuh).
# tests/cli/jitter.sh sets WITHOUT= to a folder with objects that replace some kernels.
jitter_obj := $(patsubst %.cu,$B/jitter/%.cu.o,$(hopper))
$B/jitter/%.cu.o: %.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  nvcc $< with sleeps"
	@$(nvcc) $(NVFLAGS) -DKCP_JITTER -gencode arch=compute_90a,code=sm_90a -MMD -MP \
	  -MF $(@:.o=.d) -c $< -o $@
asleep = $(filter-out $(patsubst $B/jitter/%,$B/%,$(jitter_obj)),$(core)) \
         $B/tests/judge/main.o $1
$B/kcp-check-jitter: $(call asleep,$(jitter_obj)) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
ifneq ($(WITHOUT),)
lacking = $(or $(wildcard $(WITHOUT)/$(patsubst $B/jitter/%,%,$1)),$1)
$(WITHOUT)/kcp-check: $(call asleep,$(foreach o,$(jitter_obj),$(call lacking,$o)))
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
endif
endif
endif
.PHONY: proxy
proxy: $(ptx)
	@sh tests/cli/proxy.sh $B --plant
test_needs   += $(if $(FULL),$(ptx))
test_scripts += $(if $(FULL),tests/cli/proxy.sh)
