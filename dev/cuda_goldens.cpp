// Outputs of the wrappers of ptx.h on this GPU, a line "= {JSON}" each; words in hexadecimal.
#include <cstdio>

#include "test/ptx_goldens.h"

int main() {
    for (const Golden& g : ptx_goldens()) {
        printf("= {\"wrapper\": \"%s\", \"words\": \"", g.name.c_str());
        for (size_t i = 0; i < g.words.size(); i++) printf("%s%08x", i ? " " : "", g.words[i]);
        printf("\"}\n");
    }
}
