// Requests and the passes that compute them.
#include "llmc/base/numbers/rng.h"
#include "llmc/train/score/passes.h"
#include "llmc/train/score/answers.h"
#include "test/bytes_tokenizer.h"
#include "test/task_file.h"

using std::string;
using std::vector;

static EvalTask task_of(const vector<std::pair<string, string>>& choices) {
    EvalTask t = {.name = "t"};
    t.documents.push_back({.id = 0});
    for (const auto& [context, continuation] : choices) {
        t.documents[0].contexts.push_back(context);
        t.documents[0].continuations.push_back(continuation);
    }
    return t;
}
static string text_of(const Request& r, bool scored) {
    string text;
    const size_t cut = r.tokens.size() - size_t(r.scored);
    for (size_t i = scored ? cut : 0; i < (scored ? r.tokens.size() : cut); i++)
        text += r.tokens[i] == 256 ? "<end>" : string(1, char(r.tokens[i]));
    return text;
}

TEST(white_space_belongs_to_the_continuation) {
    struct Case { string context, continuation, left, right; };
    const Case cases[] = {{"a b", " c", "a b", " c"},
                          {"a b ", "c", "a b", " c"},
                          {"a\n \t", "c", "a", "\n \tc"},
                          {"a\xc2\xa0\xe3\x80\x80", "c", "a", "\xc2\xa0\xe3\x80\x80" "c"},
                          {"a\xc3\xa0", "c", "a\xc3\xa0", "c"},
                          {"", "c d", "<end>", "c d"},
                          {"  ", "c", "<end>", "  c"}};
    for (const Case& c : cases) {
        const Request r = requests_of(task_of({{c.context, c.continuation}}), bytes_tokenizer(), 64)[0];
        const string left = text_of(r, false), right = text_of(r, true);
        EXPECT(left == c.left && right == c.right, "'%s' + '%s': '%s' + '%s'", c.context.c_str(),
               c.continuation.c_str(), left.c_str(), right.c_str());
    }
}

// A rank file: the bytes, then "st".
static Tokenizer st_tokenizer() {
    static const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    string ranks;
    for (int b = 0; b < 256; b++)
        ranks += fmt::format("{}{}== {}\n", digits[b >> 2], digits[(b & 3) << 4], b);
    return Tokenizer(vocabulary_of_tiktoken(ranks + "c3Q= 256\n", "ranks"));
}

// The context keeps its own tokens, where the tokens of both together cross its end.
TEST(a_token_across_the_cut_is_not_the_contexts) {
    const Tokenizer t = st_tokenizer();
    EXPECT(t.encode("ste") == vector<int32_t>({256, 'e'}), "st is a token");
    const Request r = requests_of(task_of({{"as", "te"}}), t, 64)[0];
    EXPECT(r.tokens == vector<int32_t>({'a', 's', 'e'}) && r.scored == 1, "%zu tokens", r.tokens.size());
    const Request joined = requests_of(task_of({{"as", "t"}}), t, 64)[0];      // one token must be left
    EXPECT(joined.tokens == vector<int32_t>({'a', 's', 256}) && joined.scored == 1, "%zu tokens, %d scored",
           joined.tokens.size(), joined.scored);
}

// The tokenizer lacks a byte, and the continuation has no other.
TEST(a_continuation_without_tokens_is_told) {
    const string path = test::task_file("empty", R"("accuracy": "sum")",
                                        {{"a", {"b"}}, {"", {"c", "\x04"}}});
    const EvalTask empty = load_task(path, "", 0);
    const Tokenizer t = bytes_tokenizer(4);
    EXPECT(t.encode("\x04").empty(), "the byte has a token");
    const Fatal e = test::fatal_of([&] { requests_of(empty, t, 64); });
    const string told = path + ", line 4: task empty, doc_id 1: continuation 1 has no token";
    EXPECT(e.code == kExitConfig && string(e.what()).find(told) != string::npos, "%s", e.what());
}

TEST(long_contexts_lose_their_beginning) {
    const EvalTask t = task_of({{"abcdefgh", "ij"}, {"ab", "cdefghijkl"}});
    const vector<Request> r = requests_of(t, bytes_tokenizer(), 5);
    EXPECT(text_of(r[0], false) == "efgh" && text_of(r[0], true) == "ij", "a long context");
    EXPECT(text_of(r[1], false) == "g" && text_of(r[1], true) == "hijkl", "a long continuation: '%s' + '%s'",
           text_of(r[1], false).c_str(), text_of(r[1], true).c_str());
}

// Documents of 1 to 5 requests with common beginnings of many lengths.
static vector<Request> random_requests(int documents, int most) {
    vector<Request> all;
    uint64_t at = 0;
    const auto draw = [&](int n) { return int(philox(5, 1, at++).x[0] % uint32_t(n)); };
    for (int d = 0; d < documents; d++) {
        const int common = 1 + draw(most - 12), count = 1 + draw(5);
        vector<int32_t> begin;
        for (int i = 0; i < common; i++) begin.push_back(draw(50));
        for (int c = 0; c < count; c++) {
            Request r{.document = d, .tokens = begin, .scored = 1 + draw(6)};
            for (int i = draw(5) + r.scored; i > 0; i--) r.tokens.push_back(draw(50));
            all.push_back(r);
        }
    }
    return all;
}

// The tokens of a row's sequence, its prefix included, up to the row.
static vector<int32_t> sequence(const ScorePass& p, const ScorePass& begin, int row) {
    int first = 0;
    size_t number = 0;
    for (const Segment& s : p.segments) {
        if (row >= first + s.B * s.T) {
            first += s.B * s.T, number += size_t(s.B);
            continue;
        }
        const int b = (row - first) / s.T;
        const auto own = p.tokens.begin() + first + b * s.T;
        const auto kept = begin.tokens.begin() + (s.t0 ? s.kept + p.from[number + size_t(b)] * s.t0 : 0);
        vector<int32_t> tokens(kept, kept + s.t0);
        tokens.insert(tokens.end(), own, p.tokens.begin() + row + 1);
        return tokens;
    }
    return {};
}

static void expect_segments(const ScorePass& p, const PassLimits& limits) {
    int tokens = 0;
    size_t sequences = 0;
    for (const Segment& s : p.segments) {
        tokens += s.B * s.T, sequences += size_t(s.B);
        EXPECT(!s.t0 || s.B * (s.t0 + s.T) <= limits.joined, "%d x (%d + %d) rows of keys", s.B, s.t0, s.T);
    }
    EXPECT(p.N() <= limits.rows && p.N() == tokens && p.from.size() == sequences,
           "%d tokens, %d in segments; %zu sequences of %zu", p.N(), tokens, sequences, p.from.size());
}

// Each scored token of each request stands once in the passes, behind the tokens before it.
static void expect_whole(const vector<Request>& requests, const vector<PassGroup>& groups,
                         const PassLimits& limits) {
    vector<int> scored(requests.size());
    int wrong = 0;
    for (const PassGroup& group : groups) {
        ScorePass begin;
        for (const ScorePass& p : group) {
            expect_segments(p, limits);
            if (p.is_prefix) begin = p;
            for (size_t i = 0; i < p.rows.size(); i++) {
                const Request& r = requests[size_t(p.requests[i])];
                const vector<int32_t> before = sequence(p, begin, p.rows[i]);
                const int number = scored[size_t(p.requests[i])]++;
                const size_t at = r.tokens.size() - size_t(r.scored) + size_t(number);
                wrong += at >= r.tokens.size() || p.targets[i] != r.tokens[at] ||
                         before != vector<int32_t>(r.tokens.begin(), r.tokens.begin() + int64_t(at));
            }
        }
    }
    for (size_t r = 0; r < requests.size(); r++) wrong += scored[r] != requests[r].scored;
    EXPECT(wrong == 0, "%d tokens are wrong", wrong);
}

TEST(every_token_is_scored_once_behind_its_own_context) {
    for (const auto& [documents, most] : {std::pair{1, 40}, {40, 40}, {300, 90}, {7, 13}}) {
        const vector<Request> requests = random_requests(documents, most);
        for (const PassLimits limits : {PassLimits{100, 400}, {100, 150}, {2048, 8192}})
            for (const bool share : {true, false})
                expect_whole(requests, pass_groups(requests, limits, share), limits);
    }
}

// WinoGrande: the contexts of a document differ, and the end of its text, which is scored, is common.
TEST(a_common_suffix_is_scored_behind_each_context) {
    const string path = test::task_file(
        "suffix", R"("accuracy": "sum")",
        {{.continuations = {" was late.", " was late."}, .label = 1,
          .contexts = {"Ann waited for Sue, as Ann", "Ann waited for Sue, as Sue"}},
         {.continuations = {"was red.", "was red."}, .label = 0,
          .contexts = {"He took the box for the bag: the box ", "He took the box for the bag: the bag "}}});
    const EvalTask task = load_task(path, "", 0);
    const vector<Request> requests = requests_of(task, bytes_tokenizer(), 64);
    const char* const begins[] = {"Ann waited for Sue, as Ann", "Ann waited for Sue, as Sue",
                                  "He took the box for the bag: the box",
                                  "He took the box for the bag: the bag"};
    CHECK(requests.size() == 4, "{} requests", requests.size());
    for (size_t i = 0; i < 4; i++) {
        const string left = text_of(requests[i], false), right = text_of(requests[i], true);
        EXPECT(left == begins[i] && right == (i < 2 ? " was late." : " was red."), "'%s' + '%s'",
               left.c_str(), right.c_str());
    }
    // the beginning that the contexts share is computed once, and what differs is not shared
    for (const bool share : {true, false}) {
        const PassLimits limits{256, 1024};
        const vector<PassGroup> groups = pass_groups(requests, limits, share);
        expect_whole(requests, groups, limits);
        EXPECT(groups.at(0).at(0).is_prefix == share, "the contexts share a beginning");
    }
    // the context that leads better to the suffix is chosen
    const vector<Score> scores = {{-9, 10, false}, {-8, 10, false}, {-5, 9, false}, {-5, 9, false}};
    const ScoredTask scored = judge(task, scores);
    EXPECT(scored.result.correct == 2, "%s", scored.answers.c_str());
}

static int64_t tokens_of_all(const vector<PassGroup>& groups) {
    int64_t sum = 0;
    for (const PassGroup& g : groups) sum += tokens_of(g);
    return sum;
}

// Four continuations of 10 tokens after 66 to 73: the last token before the continuation is read by each.
TEST(common_beginnings_are_computed_once) {
    vector<Request> requests;
    int64_t least = 0;
    for (int d = 0; d < 100; d++) {
        const size_t before = 66 + size_t(d % 8);
        for (int c = 0; c < 4; c++) {
            Request r{.document = d, .tokens = vector<int32_t>(before, d), .scored = 10};
            for (int i = 0; i < 10; i++) r.tokens.push_back(100 + c);
            requests.push_back(r);
        }
        least += int64_t(before) - 1 + 4 * 10;
    }
    const int64_t exact = tokens_of_all(pass_groups(requests, {2048, 8192}));
    EXPECT(exact == least, "%lld tokens in place of %lld", (long long)exact, (long long)least);
    const int64_t coarse = tokens_of_all(pass_groups(requests, {2048, 8192, 32}));
    EXPECT(coarse <= least + least / 25, "%lld tokens in place of %lld", (long long)coarse, (long long)least);
}

// A beginning of three tokens saves less than another segment costs.
TEST(short_beginnings_are_computed_with_each_continuation) {
    vector<Request> requests;
    for (int c = 0; c < 2; c++) requests.push_back({.document = 0, .tokens = {7, 7, 7, 7, c}, .scored = 1});
    EXPECT(pass_groups(requests, {2048, 8192, 32}).at(0).size() == 1, "one pass");
    EXPECT(pass_groups(requests, {2048, 8192}).at(0).size() == 2, "a segment that costs nothing is taken");
}

// Continuations of 5 to 60 tokens: segments have sequences of similar lengths, and passes are full.
TEST(passes_are_full_and_pad_little) {
    vector<Request> requests;
    int64_t tokens = 0;
    for (int d = 0; d < 56; d++) {
        requests.push_back({.document = d, .tokens = vector<int32_t>(size_t(6 + 55 * (d * 11 % 56) / 55), d),
                            .scored = 5});
        tokens += int64_t(requests.back().tokens.size()) - 1;
    }
    for (const auto& [segment_cost, padding] : {std::pair{0, 0.0}, {8, 0.05}, {32, 0.15}}) {
        const vector<PassGroup> groups = pass_groups(requests, {1024, 4096, segment_cost});
        size_t segments = 0;
        for (const ScorePass& p : groups.at(0)) segments += p.segments.size();
        const int64_t padded = tokens_of_all(groups);
        EXPECT(groups.size() == 1 && groups[0].size() <= size_t(padded / 1024 + 2), "%zu groups, %zu passes",
               groups.size(), groups[0].size());
        EXPECT(double(padded) <= (1 + padding) * double(tokens), "%lld tokens for %lld", (long long)padded,
               (long long)tokens);
        EXPECT(segment_cost < 8 || segments <= 20, "%zu segments", segments);
    }
}

TEST(ranks_have_equally_many_passes) {
    const vector<Request> requests = random_requests(90, 60);
    const vector<PassGroup> groups = pass_groups(requests, {100, 400});
    for (const int ranks : {1, 2, 3, 7, 200}) {
        vector<int> times(requests.size());
        const size_t count = passes_of_rank(groups, 0, ranks).size();
        for (int r = 0; r < ranks; r++) {
            const vector<ScorePass> passes = passes_of_rank(groups, r, ranks);
            EXPECT(passes.size() == count, "%d ranks: %zu passes and %zu", ranks, passes.size(), count);
            for (const ScorePass& p : passes)
                for (const int32_t i : p.requests) times[size_t(i)]++;
        }
        int wrong = 0;
        for (size_t i = 0; i < requests.size(); i++) wrong += times[i] != requests[i].scored;
        EXPECT(wrong == 0, "%d ranks: %d requests are wrong", ranks, wrong);
    }
}
