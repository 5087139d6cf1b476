#include "llmc/train/score/passes.h"

#include <algorithm>
#include <numeric>

static constexpr int kStep = 8;             // lengths of beginnings are multiples

// A document's requests, and the length of the beginning that they share.
struct Shared {
    std::span<const Request> requests;
    int first;                              // number of the first request
    int length = 0;
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
    return int(length) / kStep * kStep;
}

static std::vector<Shared> by_document(std::span<const Request> requests, bool share) {
    std::vector<Shared> documents;
    for (size_t first = 0, end; first < requests.size(); first = end) {
        end = first + 1;
        while (end < requests.size() && requests[end].document == requests[first].document) end++;
        documents.push_back({requests.subspan(first, end - first), int(first)});
        if (share) documents.back().length = shared_length(documents.back().requests);
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

static PassGroup group_of(std::span<const Shared> documents, const PassLimits& limits) {
    PassGroup group;
    const int t0 = documents[0].length;
    std::vector<Sequence> sequences;
    ScorePass begin = {.B = int(documents.size()), .T = t0, .is_prefix = true};
    for (size_t d = 0; d < documents.size(); d++) {
        const Shared& document = documents[d];
        const std::vector<int32_t>& tokens = document.requests[0].tokens;
        begin.tokens.insert(begin.tokens.end(), tokens.begin(), tokens.begin() + t0);
        for (size_t i = 0; i < document.requests.size(); i++)
            sequences.push_back({&document.requests[i], document.first + int(i), int(d), t0});
    }
    if (t0) group.push_back(std::move(begin));
    add_passes(group, std::move(sequences), t0, limits);
    return group;
}

// Documents of a group: as many beginnings as fit; without one, as many sequences as fill a few passes.
static size_t documents_of_group(std::span<const Shared> documents, const PassLimits& limits) {
    const int t0 = documents[0].length;
    const auto other = std::find_if(documents.begin(), documents.end(),
                                    [=](const Shared& s) { return s.length != t0; });
    const size_t equal = size_t(other - documents.begin());
    if (t0) return std::min(equal, size_t(limits.rows / t0));
    size_t count = 0;
    for (int64_t tokens = 0; count < equal && tokens < 4 * int64_t(limits.rows); count++)
        for (const Request& r : documents[count].requests) tokens += int64_t(r.tokens.size());
    return count;
}

std::vector<PassGroup> pass_groups(std::span<const Request> requests, const PassLimits& limits, bool share) {
    std::vector<Shared> documents = by_document(requests, share);
    std::stable_sort(documents.begin(), documents.end(), [](const Shared& a, const Shared& b) {
        const auto longest = [](const Shared& s) {
            size_t most = 0;
            for (const Request& r : s.requests) most = std::max(most, r.tokens.size());
            return most;
        };
        return a.length != b.length ? a.length > b.length : longest(a) > longest(b);
    });
    std::vector<PassGroup> groups;
    for (std::span<const Shared> rest = documents; !rest.empty();) {
        const size_t count = documents_of_group(rest, limits);
        groups.push_back(group_of(rest.first(count), limits));
        rest = rest.subspan(count);
    }
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
