#include "llmc/train/score/passes.h"

#include <algorithm>
#include <numeric>
#include <utility>

inline namespace scores {

// The requests of a document.
struct TaskDocument {
    std::span<const Request> requests;
    int first;                              // number of the first request
    int shared;                             // length of the beginning that the requests share
    int longest = 0;                        // tokens to compute: of the longest request, of all
    int64_t tokens = 0;
};

// The common tokens before every scored token's own row.
static int shared_length(std::span<const Request> requests) {
    if (requests.size() < 2) return 0;
    const std::vector<int32_t>& a = requests[0].tokens;
    size_t length = a.size();
    for (const Request& r : requests) {
        length = std::min(length, r.tokens.size() - size_t(r.scored) - 1);
        const auto end = a.begin() + int64_t(length);
        length = size_t(std::mismatch(a.begin(), end, r.tokens.begin()).first - a.begin());
    }
    return int(length);
}

static std::vector<TaskDocument> by_document(std::span<const Request> requests, bool share) {
    std::vector<TaskDocument> documents;
    for (size_t first = 0, end; first < requests.size(); first = end) {
        end = first + 1;
        while (end < requests.size() && requests[end].document == requests[first].document) end++;
        const auto own = requests.subspan(first, end - first);
        documents.push_back({own, int(first), share ? shared_length(own) : 0});
        for (const Request& r : own) {
            documents.back().longest = std::max(documents.back().longest, int(r.tokens.size()) - 1);
            documents.back().tokens += int64_t(r.tokens.size()) - 1;
        }
    }
    return documents;
}

// A sequence of a pass: the tokens of a request that follow the beginning; the last token predicts nothing.
struct Sequence {
    const Request* request;
    int number, from, begin;

    int length() const { return int(request->tokens.size()) - 1 - begin; }
};

static void add_sequence(ScorePass& pass, const Sequence& s) {
    const Request& r = *s.request;
    const int row = pass.N(), last = int(r.tokens.size()) - 1;
    pass.segments.back().B++;
    pass.tokens.insert(pass.tokens.end(), r.tokens.begin() + s.begin, r.tokens.end() - 1);
    pass.tokens.resize(size_t(row + pass.segments.back().T));
    pass.from.push_back(s.from);
    for (int i = last - r.scored; i < last; i++) {
        pass.rows.push_back(row + i - s.begin);
        pass.targets.push_back(r.tokens[size_t(i) + 1]);
        pass.requests.push_back(s.number);
    }
}

// Documents [begin, end) of a list, whose first t0 tokens are computed once. kept: the row of these tokens in
// the group's prefix pass.
struct DocumentClass {
    size_t begin, end;
    int t0, kept = 0;

    int64_t prefixes() const { return int64_t(end - begin) * t0; }
};

// Longest first: a segment has the length of its first sequence. Returns where segments end, so that tokens
// and the cost of each segment have the least sum.
static std::vector<size_t> cheapest_segments(std::span<const Sequence> sequences, int segment_cost) {
    std::vector<size_t> steps = {0};            // where lengths change
    for (size_t i = 1; i <= sequences.size(); i++)
        if (i == sequences.size() || sequences[i].length() < sequences[i - 1].length()) steps.push_back(i);
    struct Cheapest { int64_t cost; size_t begin; };
    std::vector<Cheapest> until(steps.size(), {INT64_MAX, 0});
    until[0].cost = 0;
    for (size_t begin = 0; begin + 1 < steps.size(); begin++)
        for (size_t end = begin + 1; end < steps.size(); end++) {
            const int64_t tokens = int64_t(steps[end] - steps[begin]) * sequences[steps[begin]].length();
            const int64_t cost = until[begin].cost + tokens + segment_cost;
            if (cost < until[end].cost) until[end] = {cost, begin};
        }
    std::vector<size_t> ends;
    for (size_t end = steps.size() - 1; end > 0; end = until[end].begin) ends.push_back(steps[end]);
    std::reverse(ends.begin(), ends.end());
    return ends;
}

// Sequences that run as one segment, as far as a pass has room.
struct Equal {
    int T, t0, kept;
    std::vector<Sequence> sequences;

    int64_t tokens() const { return int64_t(sequences.size()) * T; }
};

// documents: of the class.
static void add_equal(std::vector<Equal>& all, std::span<const TaskDocument> documents,
                      const DocumentClass& c, int segment_cost) {
    std::vector<Sequence> sequences;
    for (size_t d = 0; d < documents.size(); d++)
        for (size_t i = 0; i < documents[d].requests.size(); i++)
            sequences.push_back({&documents[d].requests[i], documents[d].first + int(i), int(d), c.t0});
    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const Sequence& a, const Sequence& b) { return a.length() > b.length(); });
    size_t first = 0;
    for (const size_t end : cheapest_segments(sequences, segment_cost)) {
        const auto at = sequences.begin();
        all.push_back({sequences[first].length(), c.t0, c.kept, {at + int64_t(first), at + int64_t(end)}});
        first = end;
    }
}

// Passes of about equally many tokens, as few as hold all.
static void add_passes(PassGroup& group, std::span<const Equal> all, const PassLimits& limits) {
    int64_t tokens = 0;
    for (const Equal& e : all) tokens += e.tokens();
    const int64_t count = (tokens + limits.rows - 1) / limits.rows, each = (tokens + count - 1) / count;
    ScorePass pass;
    const auto finish = [&] { group.push_back(std::exchange(pass, {})); };
    for (const Equal& e : all) {
        bool opens = true;
        for (const Sequence& s : e.sequences) {
            if (pass.N() >= each || pass.N() + e.T > limits.rows) {
                finish();
                opens = true;
            }
            const bool full = !opens && (pass.segments.back().B + 1) * (e.t0 + e.T) > limits.joined;
            if (opens || full) pass.segments.push_back({.B = 0, .T = e.T, .t0 = e.t0, .kept = e.kept});
            add_sequence(pass, s);
            opens = false;
        }
    }
    finish();
}

static void add_prefixes(ScorePass& pass, std::span<const TaskDocument> documents, DocumentClass& c) {
    c.kept = pass.N();
    pass.segments.push_back({.B = int(documents.size()), .T = c.t0});
    pass.from.resize(pass.from.size() + documents.size());
    for (const TaskDocument& d : documents) {
        const auto first = d.requests[0].tokens.begin();
        pass.tokens.insert(pass.tokens.end(), first, first + c.t0);
    }
}

static PassGroup group_of(std::span<const TaskDocument> documents, std::span<DocumentClass> classes,
                          const PassLimits& limits) {
    PassGroup group;
    ScorePass prefixes = {.is_prefix = true};
    std::vector<Equal> rest;
    for (DocumentClass& c : classes) {
        const auto own = documents.subspan(c.begin, c.end - c.begin);
        if (c.t0) add_prefixes(prefixes, own, c);
        add_equal(rest, own, c, limits.segment_cost);
    }
    if (!prefixes.segments.empty()) group.push_back(std::move(prefixes));
    add_passes(group, rest, limits);
    return group;
}

// Documents by falling length of their beginnings: a class shares the length of its last document, or
// nothing. Classes end so that tokens and segments cost least, if a class has two segments with a beginning
// and one without.
static std::vector<DocumentClass> cheapest_classes(std::span<const TaskDocument> documents,
                                                   const PassLimits& limits) {
    struct Cheapest { int64_t cost; DocumentClass last; };
    std::vector<Cheapest> until(documents.size() + 1, {INT64_MAX, {}});     // of the first i documents
    until[0].cost = 0;
    const auto offer = [&](const DocumentClass& c, int64_t rest) {
        const int64_t segments = c.t0 ? 2 : 1;
        const int64_t cost = until[c.begin].cost + c.prefixes() + rest + segments * limits.segment_cost;
        if (cost < until[c.end].cost) until[c.end] = {cost, c};
    };
    for (size_t begin = 0; begin < documents.size(); begin++) {
        int64_t tokens = 0, requests = 0;
        for (size_t end = begin + 1; end <= documents.size(); end++) {
            const TaskDocument& last = documents[end - 1];
            tokens += last.tokens;
            requests += int64_t(last.requests.size());
            const DocumentClass shared = {begin, end, last.shared};
            const bool fits = shared.prefixes() <= limits.rows,
                       few = tokens - last.tokens < 4 * int64_t(limits.rows);
            if (fits && shared.t0) offer(shared, tokens - requests * shared.t0);
            if (few) offer({begin, end, 0}, tokens);
            if (!few && (!fits || !shared.t0)) break;
        }
    }
    std::vector<DocumentClass> classes;
    for (size_t end = documents.size(); end > 0; end = until[end].last.begin)
        classes.push_back(until[end].last);
    std::reverse(classes.begin(), classes.end());
    return classes;
}

// Where groups end: a group's prefixes fit in a pass, and its tokens fill a few.
static std::vector<size_t> ends_of_groups(std::span<const TaskDocument> documents,
                                          std::span<const DocumentClass> classes, const PassLimits& limits) {
    std::vector<size_t> ends;
    int64_t prefixes = 0, tokens = 0;
    for (size_t i = 0; i < classes.size(); i++) {
        const DocumentClass& c = classes[i];
        int64_t own = 0;
        for (size_t d = c.begin; d < c.end; d++)
            own += documents[d].tokens - int64_t(documents[d].requests.size()) * c.t0;
        if (i && (prefixes + c.prefixes() > limits.rows || tokens + own > 4 * int64_t(limits.rows))) {
            ends.push_back(i);
            prefixes = tokens = 0;
        }
        prefixes += c.prefixes();
        tokens += own;
    }
    ends.push_back(classes.size());
    return ends;
}

std::vector<PassGroup> pass_groups(std::span<const Request> requests, const PassLimits& limits, bool share) {
    std::vector<TaskDocument> documents = by_document(requests, share);
    std::stable_sort(documents.begin(), documents.end(), [](const TaskDocument& a, const TaskDocument& b) {
        return a.shared != b.shared ? a.shared > b.shared : a.longest > b.longest;
    });
    std::vector<DocumentClass> classes = cheapest_classes(documents, limits);
    std::vector<PassGroup> groups;
    size_t first = 0;
    for (const size_t end : ends_of_groups(documents, classes, limits)) {
        groups.push_back(group_of(documents, std::span(classes).subspan(first, end - first), limits));
        first = end;
    }
    return groups;
}

int64_t tokens_of(std::span<const ScorePass> passes) {
    int64_t sum = 0;
    for (const ScorePass& p : passes) sum += p.N();
    return sum;
}

std::vector<ScorePass> passes_of_rank(const std::vector<PassGroup>& groups, int index, int size) {
    std::vector<int64_t> tokens(static_cast<size_t>(size));
    std::vector<size_t> counts(tokens.size());
    std::vector<ScorePass> mine;
    for (const PassGroup& group : groups) {
        const size_t least = size_t(std::min_element(tokens.begin(), tokens.end()) - tokens.begin());
        tokens[least] += tokens_of(group);
        counts[least] += group.size();
        if (int(least) == index) mine.insert(mine.end(), group.begin(), group.end());
    }
    const ScorePass nothing = {.segments = {{.B = 1, .T = 1}}, .tokens = {0}, .from = {0}};
    mine.resize(*std::max_element(counts.begin(), counts.end()), nothing);
    return mine;
}

}  // namespace scores
