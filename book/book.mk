# book.mk -- the book: one self-contained page a chapter, one a source file, a PDF.
#
#   make book        build/book/index.html, and kcp.pdf when a headless Chromium is found
#   make book-lint   look at every page in Chromium: desktop and phone, light and dark
#
# Every name that dangles (function, region, label, citation, figure, number) stops it.
# DRAFT=1 turns that into warnings, while code that a chapter shows is still to come.

D          := build/book
chapters   := $(sort $(basename $(notdir $(wildcard book/[0-9]*.md)))) \
              $(basename $(notdir $(wildcard book/A-*.md)))
bookcode   := $(sort $(wildcard ref/*.[ch] comm/*.[ch] tests/*.[ch] bench/*.[ch] bench/*/*.[ch] \
              cuda/*.cuh cuda/*/*.c cuda/*/*.cu cuda/*/*.cuh book/*.c book/figures/*.[ch]))
bookfigs   := $(patsubst book/figures/%.c,$D/figures/%.svg,$(wildcard book/figures/*.c))
bookweave   = OUT=$D LABELS=$D/labels.tsv $(if $(DRAFT),DRAFT=1) pandoc -f markdown-smart+tex_math_dollars \
              --lua-filter book/book.lua --citeproc --bibliography book/refs.bib \
              -M link-citations=true -t html5 --mathml --section-divs --template $D/page.html
CHROMIUM   := $(firstword $(foreach c,chromium-headless-shell chromium google-chrome chrome,$(shell command -v $c 2>/dev/null)))
chrome      = $(CHROMIUM) --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files
bookneeds  := $(shell command -v pandoc 2>/dev/null)

.PHONY: book book-lint book-coverage
ifeq ($(bookneeds),)
book:
	@echo "book: pandoc is missing: apt-get install pandoc"; exit 1
else
book: $D/index.html $(chapters:%=$D/%.html) $(bookcode:%=$D/src/%.html) book-coverage $(if $(CHROMIUM),$D/kcp.pdf)
	@$(if $(CHROMIUM),:,echo "book: no headless Chromium: no PDF, no lint")
	@echo "book: $D/index.html"
endif

$D/fonts.css: book/fonts.sh
	@mkdir -p $D
	@sh book/fonts.sh $D > $@

# The style sheets are text of the template; a dollar there is pandoc's.
$D/page.html: book/page.html book/book.css $D/fonts.css
	@awk '/css-text/ { while ((getline l < "$D/fonts.css") > 0) print l; \
	    while ((getline l < "book/book.css") > 0) { gsub(/\$$/, "$$$$", l); print l }; next } 1' $< > $@
# What the book's worked example prints, and its figures: programs over ref/.
booklib := $(call obj,$(REF) $(COMM))
$D/%.bin: book/%.c $(booklib)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $< $(booklib) $(LDLIBS) -o $@
$D/figures/%.bin: book/figures/%.c book/figures/svg.h $(booklib)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $< $(booklib) $(LDLIBS) -o $@
$D/example.txt: $D/example.bin
	@$< > $@.new && mv $@.new $@
$D/figures/%.svg: $D/figures/%.bin $(wildcard bench/results/*)
	@$< > $@.new && mv $@.new $@
.PRECIOUS: $D/%.bin $D/figures/%.bin $D/figures/%.svg

$D/labels.tsv: $(chapters:%=book/%.md) book/book.lua
	@mkdir -p $D
	@for c in $(chapters); do OUT=$D COLLECT=1 pandoc -f markdown-smart --lua-filter book/book.lua \
	    -M page=$$c book/letters.md book/$$c.md || exit 1; done > $@.new; mv $@.new $@

booknext = $(word 2,$(shell printf '%s\n' $(chapters) | sed -n '/^$1$$/,$$p'))
bookprev = $(lastword x $(shell printf '%s\n' $(chapters) | sed '/^$1$$/,$$d'))
booktitle = $(shell sed -n 's/^title: *//p' book/$1.md | head -1 | tr -d '"')
$D/%.html: book/%.md book/letters.md book/refs.bib book/book.lua $D/labels.tsv $D/page.html $D/example.txt $(bookfigs) $(bookcode)
	@$(bookweave) -M page=$* $(if $(call booknext,$*),-V next=$(call booknext,$*) -V nexttitle="$(call booktitle,$(call booknext,$*))") \
	    $(if $(filter-out x,$(call bookprev,$*)),-V prev=$(call bookprev,$*)) -o $@.new book/letters.md $< 2> $D/$*.log \
	    || { cat $D/$*.log; rm -f $@.new; exit 1; }
	@cat $D/$*.log; if grep -q 'WARNING' $D/$*.log; then rm -f $@.new; exit 1; fi; mv $@.new $@

$D/src/%.html: % book/source.awk book/book.css
	@mkdir -p $(@D)
	@awk -v title=$* -v css=book/book.css -f book/source.awk $< > $@

# A function counts only where book.lua let it be shown: after prose that names it.
book-coverage: $(chapters:%=$D/%.html)
	@awk -f book/functions.awk $(sort $(wildcard ref/*.c)) /dev/null > $D/functions.tsv
	@cat $D/*.shown /dev/null | awk -F'\t' 'FILENAME == "-" { shown[$$1 FS $$2] = 1; next } { n++; if (($$1 FS $$2) in shown) m++; else miss = miss "  not shown: " $$1 " " $$2 "\n" } \
	    END { printf "%sthe book shows %d of %d functions of ref/ (%.0f %%)\n", miss, m, n, n ? 100 * m / n : 0 }' - $D/functions.tsv | tee $D/coverage.txt

$D/index.html: $(chapters:%=book/%.md) book/index.md $D/page.html book-coverage
	@{ cat book/index.md; echo; for c in $(chapters); do sh book/toc.sh $$c; done; echo; \
	   echo; tail -1 $D/coverage.txt | sed 's/^the/The/;s/$$/./'; } | pandoc -f markdown --template $D/page.html -o $@

$D/print.html: $(chapters:%=$D/%.html) $D/index.html
	@sh book/print.sh $D index $(chapters) > $@
$D/kcp.pdf: $D/print.html
	@$(chrome) --no-pdf-header-footer --print-to-pdf=$@ file://$(CURDIR)/$D/print.html 2> $D/pdf.log || { cat $D/pdf.log; exit 1; }

book-lint: book
	@test -n "$(CHROMIUM)" || { echo "book-lint: no headless Chromium"; exit 1; }
	@CHROME="$(chrome)" sh book/lint.sh $D index $(chapters)
