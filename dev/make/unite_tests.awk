# Joins tests of a room into one source: first what they include, then each file in a namespace of its own, so
# that their helpers may have the same names.
# awk -f dev/make/unite_tests.awk test/ROOM/NAME.cpp ...
FNR == 1 { files[++n] = FILENAME; code = 0 }
/^#include/ && !code && !($0 in there) { there[$0] = 1; print }
/^(namespace|static|struct|TEST|#define)/ { code = 1 }
/^namespace PRECISION/ { numeric[FILENAME] = 1 }
END {
    for (i = 1; i <= n; i++) {
        name = files[i]
        gsub(/.*\/|\.cpp$/, "", name)
        print "namespace of_" name " {"
        if (numeric[files[i]]) print "namespace PRECISION { using namespace ::PRECISION; }"
        print "#include \"" files[i] "\"\n}"
    }
}
