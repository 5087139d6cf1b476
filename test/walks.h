// Walks compared: records entry by entry, and the bytes that they send.
#pragma once
#include <cstdlib>
#include <cstring>
#include <map>

#include "llmc/comm/mesh.h"
#include "llmc/ops/walk.h"
#include "test/test.h"

// Whether every preset is walked on every mesh and in each precision: LATTICE=all.
inline bool walks_all() {
    const char* const which = getenv("LATTICE");
    return which && !strcmp(which, "all");
}

inline std::string text_of(const Walk& w, const Walk::Entry& e) {
    const Cost& c = w.of(e);
    std::string dims;
    for (const int d : c.sizes()) dims += fmt::format(" {}", d);
    return fmt::format("{}{}{}, block {}, micro-batch {}, dims{}, {:g} FLOPs, {} bytes read, {} written, {} "
                       "of scratch, peer {}", c.axis ? c.axis : "", c.axis ? "." : "", c.name, e.block,
                       e.micro, dims, c.flops, c.read, c.written, c.needs.scratch, c.peer);
}

inline void expect_same(const std::string& where, const Walk& walked, const Walk& done) {
    EXPECT(walked.entries.size() == done.entries.size(), "%s: %zu entries walked, %zu done", where.c_str(),
           walked.entries.size(), done.entries.size());
    const size_t n = std::min(walked.entries.size(), done.entries.size());
    for (size_t i = 0; i < n; i++) {
        const std::string a = text_of(walked, walked.entries[i]), b = text_of(done, done.entries[i]);
        if (a == b) continue;
        EXPECT(a == b, "%s: entry %zu: walked %s; done %s", where.c_str(), i, a.c_str(), b.c_str());
        return;
    }
    EXPECT(walked.flops() == done.flops() && done.flops() > 0, "%s: %g FLOPs walked, %g done", where.c_str(),
           walked.flops(), done.flops());
}

// "dp.all_gather" -> bytes sent
inline std::map<std::string, uint64_t> sent(const Walk& w) {
    std::map<std::string, uint64_t> bytes;
    for (const Walk::Entry& e : w.entries)
        if (const Cost& c = w.of(e); c.axis) bytes[std::string(c.axis) + "." + c.name] += c.read;
    return bytes;
}
inline std::map<std::string, uint64_t> sent(const Mesh& mesh) {
    std::map<std::string, uint64_t> bytes;
    for (int a = 0; a < kGroups; a++)
        for (int v = 0; v < kVerbs; v++)
            if (const Group* g = (mesh.*group_rows[a].axis).group; g && g->moved[v].calls)
                bytes[std::string(group_rows[a].name) + "." + verb_names[v]] = g->moved[v].bytes;
    return bytes;
}
