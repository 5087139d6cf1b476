// model.depth: values by hand from the formulas of model/depth.h.
#include "llmc/model/depth.h"
#include "test/test.h"

static Config nano(const std::string& more = "") {
    Config cfg = parse_config("{\"model\": {\"vocab\": 32768, \"activation\": \"relu2\", \"tied\": false" +
                              more + "}, \"optimizer\": {\"kind\": \"muon\", \"schedule\": \"wsd\"}}",
                              "nano.json");
    apply_depth(cfg);
    return cfg;
}

TEST(depth_12_is_the_measure) {
    const Config c = nano(", \"depth\": 12");
    EXPECT(c.model.layers == 12 && c.model.channels == 768 && c.model.heads == 6 && c.model.depth == 0);
    EXPECT(c.train.batch_tokens == 1 << 19, "%lld tokens", (long long)c.train.batch_tokens);
    // P = 12 x 12 x 768^2 + 32768 x 768 = 110,100,480
    EXPECT(c.train.steps == 2205, "%lld steps", (long long)c.train.steps);
    EXPECT(c.optimizer.decay == 1433, "%lld steps of decay", (long long)c.optimizer.decay);
    EXPECT_NEAR(c.optimizer.matrix_lr, 0.02, 1e-12);
    EXPECT_NEAR(c.optimizer.embed_lr, 0.3, 1e-12);
    EXPECT_NEAR(c.optimizer.head_lr, 0.008, 1e-12);
}

TEST(other_depths_follow) {
    const Config c = nano(", \"depth\": 20");
    // P = 20 x 12 x 1280^2 + 32768 x 1280 = 435,159,040: 3.95 times as many, a batch of 2^(19 + 0.76)
    EXPECT(c.model.channels == 1280 && c.model.heads == 10 && c.train.batch_tokens == 1 << 20);
    EXPECT(c.train.steps == 4358, "%lld steps", (long long)c.train.steps);
    EXPECT_NEAR(c.optimizer.matrix_lr, 0.02 * std::sqrt(2.), 1e-12);
    EXPECT_NEAR(c.optimizer.embed_lr, 0.3 * std::sqrt(2.) * std::sqrt(768 / 1280.), 1e-12);
    EXPECT(nano(", \"depth\": 5").model.channels == 384, "64 x 5 is rounded up to 128");
}

// A batch of one token: 10.5 P steps.
TEST(gates_of_values_count_and_their_tables_do_not) {
    const auto steps = [](const std::string& more) {
        Config cfg = parse_config("{\"model\": {\"vocab\": 67, \"channels\": 16, \"depth\": 3" + more +
                                  "}, \"train\": {\"batch_tokens\": 1}}", "nano.json");
        apply_depth(cfg);
        return cfg.train.steps;
    };
    EXPECT(steps("") == 108024, "%lld steps", (long long)steps(""));        // P = 3 x 12 x 16^2 + 16 x 67
    const auto with = steps(", \"value_embeddings\": \"alternate\", \"shortcut\": \"x0\"");
    EXPECT(with == 108024 + 252, "%lld steps", (long long)with);            // gates of 2 blocks: 12 each
}

// Three windows and the whole context by turns, as in scripts/nano.json.
TEST(the_last_layer_sees_the_whole_context) {
    const auto windows_of = [](int depth, const std::string& window) {
        return nano(fmt::format(", \"depth\": {}, \"window\": {}", depth, window)).model.window;
    };
    const std::string by_turns = "[512, 512, 512, 0]";
    EXPECT(windows_of(6, by_turns) == std::vector<int>({512, 512, 512, 0, 512, 0}));
    EXPECT(windows_of(20, by_turns) == std::vector<int>({512, 512, 512, 0}), "the list ends with the layers");
    const std::vector<int> of_26 = windows_of(26, by_turns);
    EXPECT(of_26.size() == 26 && of_26[23] == 0 && of_26[24] == 512 && of_26[25] == 0);
    EXPECT(windows_of(6, "[0, 512, 512, 512]") == std::vector<int>({0, 512, 512, 512}), "ends with a window");
    EXPECT(windows_of(6, "512") == std::vector<int>({512}));
}

TEST(a_named_setting_stays) {
    const Config c = nano(", \"depth\": 20, \"channels\": 640");
    EXPECT(c.model.channels == 640 && c.model.heads == 5 && c.model.layers == 20);
    EXPECT(nano().model.layers == 12 && nano().train.steps == Config().train.steps, "depth 0 sets nothing");
    EXPECT(parse_config(to_json(c), "again").train.steps == c.train.steps, "the resolved config is complete");
}
