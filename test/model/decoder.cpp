// Generation with a cache of keys and values against the whole forward of training.
#include <set>

#include "llmc/ops/cpu/products/dnnl.h"
#include "llmc/train/run/generate.h"
#include "llmc/train/run/run_data.h"
#include "test/bytes_tokenizer.h"
#include "test/tiny.h"

namespace PRECISION {

static Config config_of(int context, int vocab = 66) {
    Config cfg = tiny_config();
    cfg.model.context = context, cfg.model.vocab = vocab;
    cfg.train.micro_batch = 1, cfg.train.batch_tokens = context;
    return cfg;
}

// Logits after each token of a sequence, (T, V).
static std::vector<double> uncached(Tiny& t, const std::vector<int32_t>& ids) {
    Gpt& gpt = t.model.gpt;
    const int T = int(ids.size());
    CHECK(T <= gpt.logit_rows, "{} rows of logits in a chunk of {}", T, gpt.logit_rows);
    gpt.forward(t.model.zero, {.tokens = ids.data(), .targets = nullptr, .B = 1, .T = T});
    const HeadTensors<floatX> w = t.model.zero.head();
    ops::matmul_forward(gpt.logits, gpt.head[0].lnf, w.w, w.b, T, t.d.C, t.d.Vp);
    std::vector<double> logits;
    for (int row = 0; row < T; row++)
        for (int i = 0; i < t.d.V; i++) logits.push_back(double(gpt.logits[row * t.d.Vp + i]));
    return logits;
}

// Largest difference of a row of logits; in bf16 relative to the largest logit.
static double difference(const Tiny& t, const floatX* row, const std::vector<double>& all, size_t at) {
    double worst = 0, scale = 0;
    for (double x : all) scale = std::max(scale, std::abs(x));
    for (int i = 0; i < t.d.V; i++) {
        const double d = std::abs(double(row[i]) - all[at * size_t(t.d.V) + size_t(i)]);
        worst = test::larger_difference(worst, d);
    }
    return kIsBf16 ? worst / scale : worst;
}

static constexpr double kAllowed = kIsFp64 ? 1e-12 : kIsBf16 ? 0.05 : 1e-5;

// A sequence in pieces of any size, past the decoder's 64 rows: the logits after each piece are those without
// a cache.
TEST(cached_logits_are_the_uncached_ones) {
    const std::pair<int, size_t> cases[] = {{37, 0}, {150, 0}, {37, 1}, {70, 2}, {37, 3},
                                             {37, 4}, {70, 6}, {150, 7}, {70, 8}, {37, 9}, {150, 10},
                                             {37, 5}, {37, 11}, {37, 12}};
    for (const auto& [context, kind] : cases) {
        Config cfg = config_of(context);
        cfg.model = of_kind(kKinds[kind], cfg.model);
        Tiny t(cfg, true);
        t.shake();
        const auto ids = test::random_ids(size_t(context), t.d.V, 4);
        const std::vector<double> expected = uncached(t, ids);
        Decoder& decoder = *t.model.decoder;
        EXPECT(decoder.own.rows == std::min(context, 64), "%d rows", decoder.own.rows);
        for (const int piece : {1, 2, 5, 36, decoder.own.rows})
            for (int t0 = 0; t0 < context; t0 += piece) {
                const int count = std::min(piece, context - t0);
                const floatX* row = decoder.forward(t.model.zero, ids.data() + t0, count, t0);
                const double d = difference(t, row, expected, size_t(t0 + count - 1));
                EXPECT(d <= kAllowed, "kind %zu, context %d, %d tokens at %d: logits %.3g apart", kind,
                       context, count, t0, d);
            }
    }
}

TEST(logits_on_the_host_are_capped) {
    for (const size_t kind : {8, 9}) {
        Config cfg = config_of(37);
        cfg.model = of_kind(kKinds[kind], cfg.model);
        Tiny t(cfg, true);
        t.shake(2);
        const auto ids = test::random_ids(5, t.d.V, 4);
        Decoder& decoder = *t.model.decoder;
        const floatX* row = decoder.forward(t.model.zero, ids.data(), 5, 0);
        const std::vector<floatX> capped = decoder.on_host(row);
        const double c = cfg.model.softcap;
        double beyond = 0;
        for (size_t i = 0; i < capped.size(); i++) {
            const double l = double(row[i]), y = kind == 8 ? c * std::tanh(l / c) : c * l / std::hypot(l, c);
            EXPECT_NEAR(double(capped[i]), y, kIsBf16 ? 0.01 * c : 1e-6 * c);
            beyond = std::max(beyond, std::fabs(l));
        }
        EXPECT(beyond > c, "kind %zu: the largest logit is %g", kind, beyond);
    }
}

// A cache with another sequence from t0 on: entries behind the last token have no effect.
TEST(what_the_cache_held_before_does_not_matter) {
    Tiny t(config_of(37), true);
    t.shake();
    const auto ids = test::random_ids(37, t.d.V, 4), other = test::random_ids(37, t.d.V, 5);
    const std::vector<double> expected = uncached(t, ids);
    t.model.decoder->forward(t.model.zero, other.data(), 37, 0);
    t.model.decoder->forward(t.model.zero, ids.data(), 20, 0);
    const floatX* next = t.model.decoder->forward(t.model.zero, ids.data() + 20, 1, 20);
    EXPECT(difference(t, next, expected, 20) <= kAllowed, "after another sequence");
    const Fatal e = test::fatal_of([&] { t.model.decoder->forward(t.model.zero, ids.data(), 2, 36); });
    EXPECT(e.code == kExitInternal, "past the context: code %d, '%s'", e.code, e.what());
}

// ---------------------------------------------------------------------------------------------------------
// text

static std::string generated(Tiny& t, const Tokenizer& tokenizer, const SampleConfig& sample,
                             const std::string& prompt, uint64_t stream = 0, int64_t seed = 1) {
    Config cfg = t.cfg;
    cfg.sample = sample, cfg.run.seed = seed;
    std::string seen;
    Generator generator(cfg, Mesh(), *t.model.decoder, t.model.zero);
    const auto emit = [&](std::string_view piece) { seen += piece; };
    const std::string text = *generator.run(tokenizer, prompt_ids(tokenizer, prompt), stream, emit);
    EXPECT(seen == text, "emit saw '%s' of '%s'", seen.c_str(), text.c_str());
    return text;
}

// Likeliest tokens by the whole forward, the window moving on by half when it is full.
static std::string greedy(Tiny& t, const std::string& prompt, int tokens) {
    std::vector<int32_t> ids(prompt.begin(), prompt.end());
    if (ids.empty()) ids.push_back(256);
    std::string text;
    size_t window = 0;
    for (int i = 0; i < tokens; i++) {
        const size_t context = size_t(t.d.maxT);
        if (ids.size() - window > context) window = ids.size() - context / 2;
        const std::vector<double> logits = uncached(t, {ids.begin() + int64_t(window), ids.end()});
        const auto last = logits.end() - t.d.V;
        const int32_t id = int32_t(std::max_element(last, logits.end()) - last);
        if (id == 256) break;
        ids.push_back(id);
        text += char(id);
    }
    return text;
}

// As a_step_builds_nothing_after_the_warm_up. The window moves on at the end of the context.
TEST_IF(!kIsFp64, a_text_builds_nothing_after_the_warm_up) {
    if (matmul_library().empty()) return test::skip("built without oneDNN");
    const Tokenizer tokenizer = bytes_tokenizer();
    Tiny t(config_of(150, 257), true);
    for (const size_t length : {0, 20, 63, 140}) {
        const std::string prompt(length, 'a');
        warm_up(t.cfg, t.model, 0, prompt_ids(tokenizer, prompt).size());
        const size_t built = dnnl_built();
        generated(t, tokenizer, {.tokens = 40}, prompt);
        EXPECT(dnnl_built() == built, "%zu ids: %zu built", length, dnnl_built() - built);
    }
}

TEST_IF(kIsFp64, greedy_text_is_that_of_the_whole_forward) {
    const Tokenizer tokenizer = bytes_tokenizer();
    Tiny t(config_of(37, 257), true);
    t.shake(0.4);
    const std::string long_prompt(100, 'x');
    size_t different = 0;
    for (const std::string& prompt :
         {std::string(), std::string("Once"), std::string(36, 'a'), std::string(37, 'b'), long_prompt}) {
        const std::string text = generated(t, tokenizer, {.tokens = 120, .temperature = 0}, prompt);
        EXPECT(text == greedy(t, prompt, 120), "prompt of %zu bytes: %zu bytes of text", prompt.size(),
               text.size());
        EXPECT(text.size() > 80, "only %zu bytes past a context of 37", text.size());
        different = std::max(different, std::set<char>(text.begin(), text.end()).size());
    }
    EXPECT(different > 3, "the text is one byte over and over: it shows nothing");
}

TEST(text_is_a_function_of_seed_and_stream) {
    const Tokenizer tokenizer = bytes_tokenizer();
    Tiny t(config_of(37, 257), true);
    const SampleConfig sample{.tokens = 60, .temperature = 1, .top_p = 1};
    const std::string a = generated(t, tokenizer, sample, "Hello", 1);
    EXPECT(generated(t, tokenizer, sample, "Hello", 1) == a, "twice the same draw");
    EXPECT(generated(t, tokenizer, sample, "Hello", 2) != a, "another stream, the same text");
    EXPECT(generated(t, tokenizer, sample, "Hello", 1, 2) != a, "another seed, the same text");
    EXPECT(a.size() <= 60 && a.size() > 0, "%zu bytes", a.size());
}

// The tokenizer with BOS 1, where it adds one, and EOS 2.
static Tokenizer with_ends(bool adds_bos) {
    Vocabulary v = bytes_tokenizer().vocabulary;
    v.bos = 1, v.eos = 2, v.adds_bos = adds_bos;
    return Tokenizer(std::move(v));
}

TEST(a_text_begins_as_its_tokenizer_says) {
    using Ids = std::vector<int32_t>;
    const Tokenizer bare = bytes_tokenizer(), silent = with_ends(false), begins = with_ends(true);
    EXPECT(prompt_ids(bare, "ab") == (Ids{'a', 'b'}) && prompt_ids(silent, "ab") == (Ids{'a', 'b'}));
    EXPECT(prompt_ids(begins, "ab") == (Ids{1, 'a', 'b'}));
    EXPECT(prompt_ids(bare, "") == Ids{256} && prompt_ids(silent, "") == Ids{256});
    EXPECT(prompt_ids(begins, "") == Ids{1});
    EXPECT(document_ids(begins, "ab") == (Ids{1, 'a', 'b'}) && document_ids(begins, "") == Ids{1});
    for (const Tokenizer* t : {&bare, &silent})
        EXPECT(document_ids(*t, "ab") == (Ids{256, 'a', 'b'}) && document_ids(*t, "") == Ids{256});
}

// A model with equal logits for every id: the text equals the sampler's draws at (stream, number of earlier
// ids). End-of-text ends the text and is left out, and so does EOS.
TEST(text_is_drawn_id_by_id_until_its_document_ends) {
    const Tokenizer tokenizer = with_ends(false);
    Tiny t(config_of(37, 257), true);
    const Tensor& wte = t.tensor("wte");
    const std::vector<real> zeros(wte.param.used(), 0);
    set_tensor(t.model.shards, wte, zeros);
    const SampleConfig sample{.tokens = 300, .temperature = 1, .top_p = 1};
    const std::vector<float> logits(257, 0);
    int ended_by_text = 0, ended_by_eos = 0;
    for (uint64_t stream = 0; stream < 12; stream++) {
        Sampler sampler{sample, 1, {}};
        std::string expected;
        int32_t id = 0;
        for (uint64_t i = 0; i < 300 && id != 256 && id != 2; i++) {
            id = sampler.draw(logits.data(), 257, stream, 5 + i);
            if (id != 256 && id != 2) expected += char(id);
        }
        ended_by_text += id == 256, ended_by_eos += id == 2;
        const std::string text = generated(t, tokenizer, sample, "Hello", stream);
        EXPECT(text == expected, "stream %d: %zu bytes, expected %zu", int(stream), text.size(),
               expected.size());
    }
    EXPECT(ended_by_text > 1 && ended_by_eos > 1 && ended_by_text + ended_by_eos < 12,
           "of 12 texts %d ended with end-of-text, %d with EOS", ended_by_text, ended_by_eos);
}

}  // namespace PRECISION
