#include "llmc/train/score/passes.h"

#include <algorithm>
#include <numeric>

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
    const int row = int(pass.tokens.size()), last = int(r.tokens.size()) - 1;
    pass.tokens.insert(pass.tokens.end(), r.tokens.begin() + s.begin, r.tokens.end() - 1);
    pass.tokens.resize(size_t(row + pass.T));
    if (pass.t0) pass.from.push_back(s.from);
    for (int i = last - r.scored; i < last; i++) {
        pass.rows.push_back(row + i - s.begin);
        pass.targets.push_back(r.tokens[size_t(i) + 1]);
        pass.requests.push_back(s.number);
    }
}

// Longest first: a pass has the length of its first sequence. Returns where passes end, so that tokens and
// limits.pass_cost for each pass have the least sum.
static std::vector<size_t> cheapest_ends(std::span<const Sequence> sequences, int t0,
                                         const PassLimits& limits) {
    struct Cheapest { int64_t cost; size_t begin; };
    std::vector<Cheapest> until(sequences.size() + 1, {INT64_MAX, 0});      // of the first i sequences
    until[0].cost = 0;
    for (size_t begin = 0; begin < sequences.size(); begin++) {
        const int T = sequences[begin].length();
        const int most = std::max(1, std::min(limits.rows / T, limits.joined / (t0 + T)));
        for (int B = 1; B <= most && begin + size_t(B) <= sequences.size(); B++) {
            const int64_t cost = until[begin].cost + int64_t(B) * T + limits.pass_cost;
            if (cost < until[begin + size_t(B)].cost) until[begin + size_t(B)] = {cost, begin};
        }
    }
    std::vector<size_t> ends;
    for (size_t end = sequences.size(); end > 0; end = until[end].begin) ends.push_back(end);
    std::reverse(ends.begin(), ends.end());
    return ends;
}

static void add_passes(PassGroup& group, std::vector<Sequence> sequences, int t0, const PassLimits& limits) {
    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const Sequence& a, const Sequence& b) { return a.length() > b.length(); });
    size_t first = 0;
    for (const size_t end : cheapest_ends(sequences, t0, limits)) {
        ScorePass pass = {.B = int(end - first), .T = sequences[first].length(), .t0 = t0};
        for (; first < end; first++) add_sequence(pass, sequences[first]);
        group.push_back(std::move(pass));
    }
}

// Documents [begin, end) of a list; the first t0 tokens of each are computed once.
struct TaskGroup { size_t begin, end; int t0; };

static PassGroup group_of(std::span<const TaskDocument> documents, int t0, const PassLimits& limits) {
    PassGroup group;
    std::vector<Sequence> sequences;
    ScorePass begin = {.B = int(documents.size()), .T = t0, .is_prefix = true};
    for (size_t d = 0; d < documents.size(); d++) {
        const TaskDocument& document = documents[d];
        const std::vector<int32_t>& tokens = document.requests[0].tokens;
        begin.tokens.insert(begin.tokens.end(), tokens.begin(), tokens.begin() + t0);
        for (size_t i = 0; i < document.requests.size(); i++)
            sequences.push_back({&document.requests[i], document.first + int(i), int(d), t0});
    }
    if (t0) group.push_back(std::move(begin));
    add_passes(group, std::move(sequences), t0, limits);
    return group;
}

// Documents by falling length of their beginnings: a group shares the length of its last document, or
// nothing. Groups end so that tokens and limits.pass_cost for each pass have the least sum, without padding.
static std::vector<TaskGroup> cheapest_groups(std::span<const TaskDocument> documents,
                                              const PassLimits& limits) {
    struct Cheapest { int64_t cost; TaskGroup group; };
    std::vector<Cheapest> until(documents.size() + 1, {INT64_MAX, {}});     // of the first i documents
    until[0].cost = 0;
    const auto offer = [&](const TaskGroup& g, int64_t prefixes, int64_t rest) {
        const int64_t passes = (g.t0 > 0) + (rest + limits.rows - 1) / limits.rows;
        const int64_t cost = until[g.begin].cost + prefixes + rest + passes * limits.pass_cost;
        if (cost < until[g.end].cost) until[g.end] = {cost, g};
    };
    for (size_t begin = 0; begin < documents.size(); begin++) {
        int64_t tokens = 0, requests = 0;
        for (size_t end = begin + 1; end <= documents.size(); end++) {
            const TaskDocument& last = documents[end - 1];
            tokens += last.tokens, requests += int64_t(last.requests.size());
            const int64_t t0 = last.shared, prefixes = int64_t(end - begin) * t0;
            const bool fits = prefixes <= limits.rows, few = tokens - last.tokens < 4 * int64_t(limits.rows);
            if (fits && t0) offer({begin, end, int(t0)}, prefixes, tokens - requests * t0);
            if (few) offer({begin, end, 0}, 0, tokens);
            if (!few && (!fits || !t0)) break;
        }
    }
    std::vector<TaskGroup> groups;
    for (size_t end = documents.size(); end > 0; end = until[end].group.begin)
        groups.push_back(until[end].group);
    std::reverse(groups.begin(), groups.end());
    return groups;
}

std::vector<PassGroup> pass_groups(std::span<const Request> requests, const PassLimits& limits, bool share) {
    std::vector<TaskDocument> documents = by_document(requests, share);
    std::stable_sort(documents.begin(), documents.end(), [](const TaskDocument& a, const TaskDocument& b) {
        return a.shared != b.shared ? a.shared > b.shared : a.longest > b.longest;
    });
    std::vector<PassGroup> groups;
    for (const TaskGroup& g : cheapest_groups(documents, limits))
        groups.push_back(group_of(std::span(documents).subspan(g.begin, g.end - g.begin), g.t0, limits));
    return groups;
}

int64_t tokens_of(std::span<const ScorePass> passes) {
    int64_t sum = 0;
    for (const ScorePass& p : passes) sum += int64_t(p.B) * p.T;
    return sum;
}

std::vector<ScorePass> passes_of_rank(const std::vector<PassGroup>& groups, int index, int size) {
    std::vector<int64_t> tokens(static_cast<size_t>(size));
    std::vector<size_t> counts(tokens.size());
    std::vector<ScorePass> mine;
    for (const PassGroup& group : groups) {
        const size_t least = size_t(std::min_element(tokens.begin(), tokens.end()) - tokens.begin());
        tokens[least] += tokens_of(group), counts[least] += group.size();
        if (int(least) == index) mine.insert(mine.end(), group.begin(), group.end());
    }
    const ScorePass nothing = {.B = 1, .T = 1, .tokens = {0}};
    mine.resize(*std::max_element(counts.begin(), counts.end()), nothing);
    return mine;
}
