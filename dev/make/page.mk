# The page of --watch: llmc/train/watch/page.html with its parts in place. The program embeds $(PAGE).
PAGE := $(BUILD)/page.html
$(PAGE): llmc/train/watch/page.html $(wildcard llmc/train/watch/page/*) scripts/references.json dev/make/join.awk
	@echo "join  $@" && mkdir -p $(@D) && awk -f dev/make/join.awk $< > $@.new && mv $@.new $@
