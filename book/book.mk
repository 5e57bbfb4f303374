# book.mk -- builds a self-contained page per chapter and per source file, and a PDF.
#
#   make book        writes build/book/index.html, and kcp.pdf if Chromium is found
#   make book-lint   checks every page in Chromium: desktop and phone, light and dark
#   make notebook    runs the NumPy notebook and compares its numbers with the book
#
# An unknown function, region, label, citation, figure or number stops the build.

bk         := build/book
include book/compute.mk
# Chapters in reading order, by parts. idea.md is first; users, models, labs, staff and compute are last.
page        = $(basename $(notdir $(wildcard $(addprefix book/,$(addsuffix -*.md,$1)))))
part1      := $(call page,00 01 02 03 04 05 06 07 08 09 10 11 12 13)
part2      := $(call page,17 T 18 18b 18c)
part3      := $(call page,14 20)
part4      := $(call page,15 16 19 A B)
chapters   := idea $(part1) $(part2) $(part3) $(part4) users models labs staff $(if $(wasm_has),compute)
bookcode   := $(sort $(wildcard ref/*.[ch] ref/*/*.[ch] ref/stages/*.def ref/core/*.def comm/*.[ch] comm/*/*.[ch] tests/*/*.[ch] bench/*/*.[ch] book/examples/plugins/*.c bench/*.cu bench/*/*.cu \
              cuda/*/*.h cuda/*/*.c cuda/*/*.cu cuda/*/*.cuh cuda/*/*/*.h cuda/*/*/*.cu cuda/*/*/*.cuh book/*.[ch] book/parts.py book/figures/*.py book/examples/*.[ch] book/examples/*.cu book/labs/*.c book/labs/*.cpp book/compute/*.[ch]))
# A figure is a function in book/figures/ with a row in book/data/figures.tsv.
bookfigs   := $(patsubst %,$(bk)/figures/%.svg,$(shell awk -F'\t' 'NF == 3 && $$1 != "figure" { print $$1 }' book/data/figures.tsv))
bookweave   = OUT=$(bk) LABELS=$(bk)/labels.tsv pandoc -f markdown+tex_math_dollars \
              --lua-filter book/book.lua --citeproc --bibliography book/refs.bib \
              -M link-citations=true $(bookmore) -t html5 --mathml --section-divs --template $(bk)/page.html
CHROMIUM   := $(firstword $(foreach c,chromium-headless-shell chromium google-chrome chrome,$(shell command -v $c 2>/dev/null)))
chrome      = $(CHROMIUM) --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files
bookneeds  := $(shell command -v pandoc 2>/dev/null)

# If pandoc is found, `make test` builds the pages; this fails if a page names code
# or a number that does not exist. With FULL=1 it also prints the PDF, in half a minute.
test_needs += $(if $(filter build,$B),$(if $(bookneeds),$(if $(FULL),book,book-pages)))
test_scripts += tests/cli/layout.sh tests/cli/answers.sh
.PHONY: book book-pages book-lint book-coverage notebook
ifeq ($(bookneeds),)
book:
	@echo "book: pandoc is missing: apt-get install pandoc"; exit 1
else
book-pages: $(bk)/index.html $(bk)/src/index.html $(chapters:%=$(bk)/%.html) $(bookcode:%=$(bk)/src/%.html) book-coverage
book: book-pages notebook $(if $(CHROMIUM),$(bk)/kcp.pdf)
	@$(if $(CHROMIUM),:,echo "book: no headless Chromium found, so no PDF is made and no page is checked")
	@$(if $(wasm_has),:,echo "book: clang, lld, wasi-libc or libclang-rt-dev-wasm32 not found: the page that computes is left out")
	@echo "book: $(bk)/index.html"
endif

$(bk)/fonts.css: book/fonts.sh
	@mkdir -p $(bk)
	@sh book/fonts.sh $(bk) > $@

# Copies the style sheets into the template. In a pandoc template $$ is one dollar sign.
$(bk)/page.html: book/page.html book/book.css $(bk)/fonts.css
	@awk '/css-text/ { while ((getline l < "$(bk)/fonts.css") > 0) print l; \
	    while ((getline l < "book/book.css") > 0) { gsub(/\$$/, "$$$$", l); print l }; next } 1' $< > $@
# Links ref/ to the programs that print the worked example and the figures' numbers.
booklib := $(call obj,$(ref) $(filter-out comm/backend/nccl%,$(comm)))
$(bk)/%.bin: book/%.c $(wildcard book/*.h) $(booklib)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $< $(booklib) $(LDLIBS) -o $@
# points.c calls functions of cuda/tile/smem_desc.cuh. This rule converts that file to C:
# without default arguments, and with numbers as addresses of shared memory.
$(bk)/smem_desc.h: cuda/tile/smem_desc.cuh
	@mkdir -p $(@D)
	@{ echo '#include <stdint.h>'; echo '#define __device__'; echo '#define __forceinline__ inline'; \
	   echo 'typedef uint16_t bf16;'; echo '#include "cuda/tile/swizzle.cuh"'; \
	   echo 'static inline uint32_t smem_addr(const void *p) { return (uint32_t)(uintptr_t)p; }'; \
	   sed '/#include/d; s/int tile = SWIZZLE128_TILE/int tile/' $<; } >$@
$(bk)/points.bin: $(bk)/smem_desc.h
$(bk)/points.bin: private CFLAGS += -include $(bk)/smem_desc.h
bookprogs := $(patsubst book/%.c,$(bk)/%.bin,$(wildcard book/*.c))
$(bk)/example.txt: $(bookprogs) book/parts.py book/data/answers.txt $(wildcard bench/results/*.tsv)
	@for p in $(bookprogs) "python3 -B book/parts.py" "cat book/data/answers.txt"; do $$p || exit 1; done > $@.new && mv $@.new $@
# The notebook of chapters 01 to 08, with its outputs. Without NumPy it has no outputs, and
# the old date makes the next make try again.
test_needs += notebook
notebook: $(bk)/kcp_in_numpy.ipynb
$(bk)/kcp_in_numpy.ipynb: book/examples/kcp_in_numpy.ipynb book/notebook.py $(patsubst %,$(bk)/%.bin,example example_more example_whole)
	@for p in python3 /usr/bin/python3; do $$p -c 'import numpy' 2>/dev/null && exec $$p book/notebook.py $< $@ $(filter %.bin,$^); done; \
	  echo "notebook: NumPy not found: left out (apt-get install python3-numpy)"; cp $< $@; touch -d 1970-01-01 $@
# After a kernel is built, tables.py finds again which records were measured with the
# present kernels. Files made from tables are made again only if a table has changed.
$(bk)/results.made: bench/LOG.md $(wildcard bench/results/*.tsv book/data/*.tsv bench/*.py $(cuda_obj)) \
                    book/tables.py $(wildcard ref/core/paths.def) $(bookcode)
	@mkdir -p $(bk)
	@python3 book/tables.py $(bk)/results.new
	@diff -r -x done $(bk)/results.new $(bk)/results >/dev/null 2>&1 && rm -r $(bk)/results.new || \
	  { rm -rf $(bk)/results && mv $(bk)/results.new $(bk)/results; }
	@touch $@
$(bk)/results/done: $(bk)/results.made
	@[ -e $@ ] || touch $@
$(bookfigs): $(bk)/figures/%.svg: $(wildcard book/figures/*.py) book/tokens.h book/A-errata.md tests/judge/tolerance.def \
              $(bk)/results/done $(bk)/example.txt $(wildcard book/data/*.tsv)
	@mkdir -p $(@D)
	@python3 -B book/figures/draw.py $* > $@.new && mv $@.new $@
.PRECIOUS: $(bk)/%.bin $(bk)/figures/%.svg

$(bk)/labels.tsv: $(chapters:%=book/%.md) book/book.lua
	@mkdir -p $(bk)
	@for c in $(chapters); do OUT=$(bk) COLLECT=1 pandoc -f markdown --lua-filter book/book.lua \
	    -M page=$$c book/letters.md book/$$c.md || exit 1; done > $@.new; mv $@.new $@

# texmath stretches every parenthesis; TeX stretches only those of matrices. A brace under a
# term becomes a line that book.css draws, because browsers do not stretch the brace. Tildes and
# hats are separate signs, because browsers draw combining marks too small and too high.
bookmath = 's/<munder><munder>/<munder class="named">/g; s/<mo accent="true">⏟<\/mo><\/munder>//g; \
    s/<mover>(<mi>[a-z]<\/mi>)<mo accent="true">̃<\/mo>/<mover accent="true">\1<mo stretchy="false">˜<\/mo>/g; \
    s/<mover>(<mi>S<\/mi>|<mrow><mtext[^>]*>d<\/mtext><mi>S<\/mi><\/mrow>)<mo accent="true">̂<\/mo>/<mover accent="true">\1<mo stretchy="false">ˆ<\/mo>/g; \
    s/stretchy="true" form="prefix">([([|])<\/mo><mtable/KEEP\1/g; s/<\/mtable><mo stretchy="true" form="postfix">/KEEPEND/g; \
    s/stretchy="true" form="(prefix|postfix)">([][()∥|])</stretchy="false" form="\1">\2</g; \
    s/<mo>([A-Za-z]{2,}[0-9]?[a-z]?|ℓ)<\/mo>/<mi>\1<\/mi>/g; \
    s/(<mo>(=|,|≈|≤|≥|←)<\/mo>|form="prefix">\(<\/mo>)<mo>−<\/mo>/\1<mo form="prefix">−<\/mo>/g; \
    s/form="(prefix|postfix)">∥/form="\1" lspace="0" rspace="0">∥/g; \
    s/(<mi>ln<\/mi>)<m([in])>/\1<mspace width=".17em"\/><m\2>/g; s/(<mi>log<\/mi><mn>2<\/mn><\/msub>)<mi>/\1<mspace width=".17em"\/><mi>/g; \
    s/KEEPEND/<\/mtable><mo stretchy="true" form="postfix">/g; s/KEEP([([|])/stretchy="true" form="prefix">\1<\/mo><mtable/g'

booknext = $(word 2,$(shell printf '%s\n' $(chapters) | sed -n '/^$1$$/,$$p'))
bookprev = $(lastword x $(shell printf '%s\n' $(chapters) | sed '/^$1$$/,$$d'))
booktitle = $(shell sed -n 's/^title: *//p' book/$1.md | head -1 | tr -d '"')
$(bk)/%.html: book/%.md book/letters.md book/refs.bib book/book.lua $(bk)/labels.tsv $(bk)/page.html $(bk)/example.txt $(bookfigs) $(bk)/results/done $(bookcode)
	@$(bookweave) -M page=$* $(if $(call booknext,$*),-V next=$(call booknext,$*) -V nexttitle="$(call booktitle,$(call booknext,$*))") \
	    $(if $(filter-out x,$(call bookprev,$*)),-V prev=$(call bookprev,$*)) -o $@.new book/letters.md $< 2> $(bk)/$*.log \
	    || { cat $(bk)/$*.log; rm -f $@.new; exit 1; }
	@grep -v 'no test is named' $(bk)/$*.log || true; if grep -q 'WARNING' $(bk)/$*.log; then rm -f $@.new; exit 1; fi
	@sed -E $(bookmath) $@.new > $@ && rm -f $@.new

$(bk)/users.html: $(wildcard book/examples/torch/*.py book/examples/torch/kcp_torch/*.py)

$(bk)/src/%.html: % book/source.awk book/book.css
	@mkdir -p $(@D)
	@awk -v title=$* -v css=book/book.css -f book/source.awk $< > $@

# Lists every source file, by folder.
$(bk)/src/index.html: book/source.awk book/book.css $(bookcode)
	@mkdir -p $(@D)
	@{ awk -v title=src/index -v css=book/book.css -f book/source.awk /dev/null | sed 's,<h1>.*,<h1>Every source file</h1>,; /<pre class/,$$d'; \
	   for d in $(sort $(patsubst %/,%,$(dir $(bookcode)))); do echo "<h2>$$d/</h2><ul>"; \
	     for f in $(bookcode); do case $$f in $$d/*/*) ;; $$d/*) \
	       echo "<li><a href=\"$$f.html\"><code>$${f##*/}</code></a> $$(sed -n '1s/.* -- *//;1s/&/\&amp;/g;1s/</\&lt;/g;1p' $$f)</li>" ;; esac; done; echo '</ul>'; done; \
	   echo '</main></body></html>'; } > $@

# A function is shown if a page includes it. book.lua requires a formula before it.
$(bk)/coverage.txt: $(chapters:%=$(bk)/%.html) book/functions.awk book/kernels.awk
	@awk -f book/functions.awk $(sort $(wildcard ref/*.c)) /dev/null > $(bk)/functions.tsv
	@cat $(bk)/*.shown /dev/null | awk -F'\t' 'FILENAME == "-" { shown[$$1 FS $$2] = 1; next } { n++; if (($$1 FS $$2) in shown) m++; else miss = miss "  not shown: " $$1 " " $$2 "\n" } \
	    END { printf "%sthe book shows %d of %d functions of ref/ (%.0f %%)\n", miss, m, n, n ? 100 * m / n : 0 }' - $(bk)/functions.tsv > $@.new
	@cat $(bk)/*.lines /dev/null | awk -f book/kernels.awk - $(filter cuda/%,$(bookcode)) >> $@.new; \
	  if grep -q 'less than a third' $@.new; then cat $@.new; exit 1; fi; mv $@.new $@
book-coverage: $(bk)/coverage.txt
	@cat $<
	@cat $(bk)/*.log | grep 'no test is named' | sed 's/.*for //' | awk '{ s = s " " $$0 } END { if (NR) print "equations that name no test yet:" s }'

$(bk)/index.html: $(chapters:%=book/%.md) book/index.md book/toc.sh $(bk)/page.html $(bk)/coverage.txt
	@{ awk '/^<!-- [a-z]+ -->$$/ { print "```{=html}\n<div class=\"figure\"><div class=\"scroll\">"; \
	     while ((getline l < ("$(bk)/figures/" $$2 ".svg")) > 0) print l; print "</div></div>\n```"; next } 1' book/index.md; \
	   echo; sh book/toc.sh '' idea; \
	   sh book/toc.sh 'Part I: The mathematics (14 hours)' $(part1); sh book/toc.sh 'Part II: One GPU (10 hours)' $(part2); \
	   sh book/toc.sh 'Part III: Many GPUs (4 hours)' $(part3); sh book/toc.sh 'Part IV: More of the family (6 hours)' $(part4); \
	   sh book/toc.sh 'Using the library (1 hour)' users models; sh book/toc.sh 'Labs (8 to 24 hours per lab)' labs staff; \
	   $(if $(wasm_has),sh book/toc.sh 'Experiments' compute;) \
	   echo; sed -n 's/^the book/The book/p' $(bk)/coverage.txt | sed 's/$$/./; s/ %/\\ %/g'; } | pandoc -f markdown --template $(bk)/page.html -o $@

$(bk)/print.html: $(chapters:%=$(bk)/%.html) $(bk)/index.html
	@sh book/print.sh $(bk) index $(filter-out compute,$(chapters)) > $@
$(bk)/kcp.pdf: $(bk)/print.html
	@$(chrome) --no-pdf-header-footer --print-to-pdf=$@ file://$(CURDIR)/$(bk)/print.html 2> $(bk)/pdf.log || { cat $(bk)/pdf.log; exit 1; }; rm -f $(bk)/pdf.log

book-lint: book
	@test -n "$(CHROMIUM)" || { echo "book-lint: no headless Chromium"; exit 1; }
	@sh book/dangling.sh $(bk)
	@for f in journey measured; do sh book/figures/standalone.sh $(bk)/figures/$$f.svg | cmp -s - book/data/$$f.svg || \
	  { echo "book-lint: book/data/$$f.svg is out of date: sh book/figures/standalone.sh $(bk)/figures/$$f.svg >book/data/$$f.svg"; exit 1; }; done
	@CHROME="$(chrome)" sh book/lint.sh $(bk) index $(chapters)
