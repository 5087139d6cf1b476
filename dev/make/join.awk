# Joins the parts of a page: a line /* join FILE */ becomes the lines of FILE, which stands relative to the page.
# awk -f dev/make/join.awk llmc/train/watch/page.html > page.html
FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder) }
/^\/\* join [^ ]+ \*\/$/ {
    file = folder $3
    while ((got = (getline line < file)) > 0) print line
    if (got < 0) { print "error: " FILENAME ":" FNR ": no file " file > "/dev/stderr"; exit 1 }
    close(file)
    next
}
{ print }
