# text.mk -- make run [RANKS=] [TEXT=] [STEPS=]: runs the layer on real text over ranks.
# --wrap redirects the names below to bench/text/trace.c, which times the calls.

text_wrap := $(addprefix kcp_ref_,gate wy affine chunk chunk_backward wy_backward \
               merge_backward conv)
text_obj  := $(call obj,$(wildcard bench/text/*.c) $(base))

$B/kcp-text: $(call obj,$(ref) $(comm)) $(text_obj)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $^ $(text_wrap:%=-Wl,--wrap=%) -lpthread -lm -ldl $(cuda_ldlibs) -o $@

.PHONY: run compiler
compiler:
	@command -v $(CC) >/dev/null || sh .ci/setup
run: compiler $B/kcp-text
	@$B/kcp-text $(if $(RANKS),--ranks '$(RANKS)') $(if $(STEPS),--steps '$(STEPS)') \
	  $(if $(TEXT),--text '$(subst ','\'',$(TEXT))')

test_needs   += $B/kcp-text
