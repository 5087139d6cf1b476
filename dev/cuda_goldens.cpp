// Outputs of the wrappers of ptx.h and ptx_hopper.h on this GPU, a line "= {JSON}" each, in hexadecimal.
#include <cstdio>

#include "test/ptx_goldens.h"

int main() {
    std::vector<Golden> goldens = ptx_goldens();
    for (const Golden& g : ptx_hopper_goldens()) goldens.push_back(g);
    for (const Golden& g : goldens) {
        printf("= {\"wrapper\": \"%s\", \"words\": \"", g.name.c_str());
        for (size_t i = 0; i < g.words.size(); i++) printf("%s%08x", i ? " " : "", g.words[i]);
        printf("\"}\n");
    }
}
