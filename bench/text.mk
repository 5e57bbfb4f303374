# text.mk -- make run [RANKS=] [TEXT=] [STEPS=]: runs the layer on real text over ranks.
# --wrap redirects the names below to bench/text/trace.c, which times the calls.

text_wrap := $(addprefix kcp_ref_,gate wy affine chunk chunk_backward wy_backward \
               merge_backward conv)
text_obj  := $(call obj,$(wildcard bench/text/*.c) $(base))

# Writes the page's style sheets (book.css, then page.css) as one C string.
$B/bench/text/page_css.c: book/book.css bench/text/page.css
	@mkdir -p $(@D)
	@{ echo 'extern const char page_style[];'; echo 'const char page_style[] ='; \
	   sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $^; echo ';'; } >$@
$B/bench/text/page_css.o: $B/bench/text/page_css.c
	@$(CC) $(CFLAGS) -c $< -o $@
text_obj  += $B/bench/text/page_css.o

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
test_scripts += tests/cli/text.sh
