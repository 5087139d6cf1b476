// Drawing the next token.
#include "llmc/train/step/sampler.h"

#include <cmath>
#include <set>

#include "llmc/base/numbers/rng.h"
#include "test/test.h"

static SampleConfig with(double temperature, int top_k, double top_p) {
    SampleConfig c;
    c.temperature = temperature, c.top_k = top_k, c.top_p = top_p;
    return c;
}

static std::vector<float> some_logits(int V) {
    std::vector<float> logits(size_t(V), 0);
    for (size_t i = 0; i < logits.size(); i++) logits[i] = float(2 * normal(1, 2, i));
    return logits;
}

static std::vector<int> draws(const SampleConfig& cfg, const std::vector<float>& logits, int count,
                              uint64_t seed = 1) {
    Sampler sampler{cfg, seed, {}};
    std::vector<int> hits(logits.size());
    for (int i = 0; i < count; i++)
        hits[size_t(sampler.draw(logits.data(), int(logits.size()), 7, uint64_t(i)))]++;
    return hits;
}

TEST(the_likeliest) {
    auto logits = some_logits(100);
    logits[63] = 20, logits[64] = 20;       // the lower id of two alike
    for (const SampleConfig& cfg : {with(0, 0, 1), with(1, 1, 1), with(1, 0, 1e-9), with(1, 0, 0)})
        EXPECT(draws(cfg, logits, 50)[63] == 50, "temperature %g, top_k %d, top_p %g", cfg.temperature,
               cfg.top_k, cfg.top_p);
}

// Chi squared against the softmax of what top-k and top-p leave.
static void check_distribution(const SampleConfig& cfg, const std::vector<float>& logits,
                               const std::set<int>& allowed) {
    constexpr int kDraws = 20000;
    const auto hits = draws(cfg, logits, kDraws);
    double sum = 0, chi = 0;
    for (int i : allowed) sum += std::exp(double(logits[size_t(i)]) / cfg.temperature);
    for (size_t i = 0; i < logits.size(); i++) {
        if (!allowed.count(int(i))) { EXPECT(hits[i] == 0, "%zu is drawn %d times", i, hits[i]); continue; }
        const double expected = kDraws * std::exp(double(logits[i]) / cfg.temperature) / sum;
        chi += (hits[i] - expected) * (hits[i] - expected) / expected;
    }
    const double freedom = double(allowed.size()) - 1;
    EXPECT(chi < freedom + 4 * std::sqrt(2 * freedom),
           "temperature %g, top_k %d, top_p %g: chi squared %.1f of %g degrees of freedom", cfg.temperature,
           cfg.top_k, cfg.top_p, chi, freedom);
}

TEST(draws_follow_the_softmax) {
    const std::vector<float> logits = {0.1f, -1, 2, 0.5f, 1.9f, -0.3f, 0, 1};
    check_distribution(with(1, 0, 1), logits, {0, 1, 2, 3, 4, 5, 6, 7});
    check_distribution(with(0.5, 0, 1), logits, {0, 1, 2, 3, 4, 5, 6, 7});
    check_distribution(with(2, 100, 1), logits, {0, 1, 2, 3, 4, 5, 6, 7});
    check_distribution(with(1, 3, 1), logits, {2, 4, 7});
    // probabilities 0.33, 0.30, 0.12, 0.07, ...: the least that holds 0.7 is the first three, and 0.6 the
    // first two
    check_distribution(with(1, 0, 0.7), logits, {2, 4, 7});
    check_distribution(with(1, 0, 0.6), logits, {2, 4});
    check_distribution(with(1, 2, 0.9), logits, {2, 4});
}

// A pure function of seed, stream and position: nothing is left over from earlier draws.
TEST(draws_are_pure) {
    const auto logits = some_logits(200);
    Sampler a{with(1, 0, 0.95), 1, {}}, b{with(1, 0, 0.95), 1, {}}, other{with(1, 0, 0.95), 2, {}};
    int same_seed = 0, same_stream = 0, same_position = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const int32_t id = a.draw(logits.data(), 200, 3, i);
        b.draw(logits.data(), 200, i, 5);
        EXPECT(b.draw(logits.data(), 200, 3, i) == id, "position %zu", size_t(i));
        same_seed += other.draw(logits.data(), 200, 3, i) == id;
        same_stream += a.draw(logits.data(), 200, 4, i) == id;
        same_position += a.draw(logits.data(), 200, 3, i + 1000) == id;
    }
    EXPECT(same_seed < 50 && same_stream < 50 && same_position < 50, "%d, %d and %d of 100 alike", same_seed,
           same_stream, same_position);
}

TEST(nan_never_wins) {
    auto logits = some_logits(50);
    for (size_t i = 0; i < 50; i += 2) logits[i] = NAN;
    for (const SampleConfig& cfg : {with(0, 0, 1), with(1, 0, 1), with(1, 5, 0.9)}) {
        const auto hits = draws(cfg, logits, 200);
        for (size_t i = 0; i < 50; i += 2) EXPECT(hits[i] == 0, "NaN at %zu is drawn", i);
    }
    for (float& l : logits) l = NAN;
    const Fatal e = test::fatal_of([&] { draws(with(1, 0, 1), logits, 1); });
    EXPECT(e.code != 0 && std::string(e.what()).find("NaN") != std::string::npos, "'%s'", e.what());
}

TEST(infinite_logits) {
    std::vector<float> logits(10, -INFINITY);
    logits[3] = 1, logits[4] = 1;
    const auto hits = draws(with(1, 0, 1), logits, 100);
    EXPECT(hits[3] + hits[4] == 100 && hits[3] > 20 && hits[4] > 20, "%d and %d of 100", hits[3], hits[4]);
    logits[5] = INFINITY;
    EXPECT(draws(with(1, 0, 1), logits, 20)[5] == 20, "infinity is the likeliest");
}
