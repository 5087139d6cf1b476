// Every kind of model: the rows of its tables, and the gradients of all its tensors by finite differences.
#include "test/tiny.h"

namespace PRECISION {

static Config config_of(const ModelConfig& kind) {
    Config cfg = tiny_config();
    cfg.model = of_kind(kind, cfg.model);
    return cfg;
}

// The mean loss of the first batch; gradients are left in t.
static double loss_of(Tiny& t) {
    Loader data(t.set, t.cfg.train.micro_batch, 0, 0, 1);
    t.model.pipeline.run(data);
    double sum = 0;
    t.model.pipeline.sum_losses(&sum);
    return sum / t.model.pipeline.step_tokens();
}

// Along a direction of three elements of each tensor: the first, one in the middle, the last.
TEST_IF(kIsFp64, gradients_are_the_slopes_of_the_loss) {
    set_threads(2);
    for (const ModelConfig& kind : kKinds) {
        Tiny t(config_of(kind));
        t.shake();
        Shards& shards = t.model.shards;
        loss_of(t);
        std::vector<real> grads(shards.layout.size());
        for (int b = 0; b < shards.layout.count(); b++)
            std::copy_n(shards.grad_shard(b), shards.layout.size(b), &grads[shards.layout.start(b)]);
        for (const Tensor& tensor : shards.layout.tensors) {
            const size_t used = tensor.param.used(), elements[] = {0, used / 2, used - 1};
            double slope = 0;
            for (int k = 0; k < 3; k++) slope += (k + 1) * double(grads[tensor.start + elements[k]]);
            const auto loss_beyond = [&](double h) {
                floatX* const w = &shards.params[tensor.start];
                const floatX before[] = {w[elements[0]], w[elements[1]], w[elements[2]]};
                for (int k = 0; k < 3; k++) w[elements[k]] = floatX(double(w[elements[k]]) + (k + 1) * h);
                shards.weights_changed();
                const double loss = loss_of(t);
                for (int k = 0; k < 3; k++) w[elements[k]] = before[k];
                return loss;
            };
            const double h = 1e-5, found = (loss_beyond(h) - loss_beyond(-h)) / (2 * h);
            shards.weights_changed();
            EXPECT(std::fabs(found - slope) < 3e-8, "%s: %.12g, expected %.12g", tensor.name.c_str(), slope,
                   found);
        }
    }
}

// As many tensors as the settings say.
TEST_IF(kIsFp64, a_kind_has_the_rows_of_its_settings) {
    const size_t expected[] = {2 + 2 * 12 + 2, 2 + 2 * 6 + 1, 2 + 2 * 8, 2 + 2 * 4,
                               2 + 2 * 10 + 1, 1 + 2 * 7 + 1, 4 + 2 * 12 + 2,
                               1 + 2 * 8 + 1, 1 + 2 * 4 + 1, 2 + 2 * 12 + 3,
                               1 + 2 * 6 + 2 + 1, 2 + 2 * 14 + 2 + 2, 2 + 2 * 10 + 3};
    static_assert(std::size(expected) == std::size(kKinds));
    for (size_t i = 0; i < std::size(kKinds); i++) {
        const size_t found = whole_tensors(make_dims(config_of(kKinds[i]).model)).size();
        EXPECT(found == expected[i], "kind %zu: %zu tensors, expected %zu", i, found, expected[i]);
    }
}

// The deviation of a tensor's random numbers, by the words of --help.
static double expected_deviation(const std::string& tensor, const ModelConfig& m, bool unit) {
    const std::string name = tensor.substr(tensor.rfind('.') + 1);
    if (name == "gatew") return 0;
    const bool projects = name == "attprojw" || name == "fcprojw";
    if (!unit) return projects ? 0.02 / std::sqrt(2. * m.layers) : 0.02;
    if (name == "wte" || name == "wpe") return 1;
    return projects || name == "headw" ? 0 : 1 / std::sqrt(double(m.channels));
}

TEST(weights_start_as_init_kind_says) {
    for (const bool unit : {false, true})
        for (const bool tied : {false, true}) {
            Config cfg = tiny_config();
            cfg.model.init_kind = unit ? InitKind::Unit : InitKind::Gpt2, cfg.model.tied = tied;
            cfg.model.value_embeddings = ValueEmbeddings::Alternate;
            Tiny t(cfg);
            for (const Tensor& tensor : whole_tensors(t.d)) {
                if (tensor.param.cols == 1) continue;
                double sum = 0, squares = 0;
                const std::vector<real> values = t.whole(tensor);
                for (const real v : values) sum += double(v), squares += double(v) * double(v);
                const double n = double(values.size()), found = std::sqrt(squares / n);
                const double expected = expected_deviation(tensor.name, cfg.model, unit);
                EXPECT(std::fabs(found - expected) <= expected * 4 / std::sqrt(2 * n) &&
                       std::fabs(sum / n) <= expected * 4 / std::sqrt(n),
                       "%s: mean %g, deviation %g, expected %g", tensor.name.c_str(), sum / n, found,
                       expected);
            }
            if (unit && !tied) EXPECT_NEAR(loss_of(t), std::log(66.), kIsFp64 ? 1e-12 : 1e-5);
        }
}

// With zero gradients only decay acts: on the matrices of every kind, and on nothing else.
TEST(decay_is_on_matrices_only) {
    for (const ModelConfig& kind : kKinds) {
        Config cfg = tiny_config();
        cfg.model = of_kind(kind, cfg.model), cfg.optimizer.weight_decay = 0.5;
        Tiny t(cfg);
        t.shake();
        const std::vector<real> before(t.masters(), t.masters() + t.size());
        t.model.zero.clear_grads();
        t.model.gpt.clear_loss();
        enqueue_update(t.model, 0.1, 0);
        for (const Tensor& tensor : t.model.shards.layout.tensors) {
            const bool matrix = tensor.param.whole_cols > 1;
            size_t wrong = 0;
            for (size_t i = tensor.start; i < tensor.start + tensor.param.used(); i++) {
                const double expected = double(before[i]) * (matrix ? 1 - 0.1 * 0.5 : 1);
                wrong += std::fabs(double(t.masters()[i]) - expected) > (matrix ? 1e-6 : 0);
            }
            EXPECT(wrong == 0, "%s: %zu elements", tensor.name.c_str(), wrong);
        }
    }
}

TEST(shortcuts_start_as_in_nanochat) {
    Config cfg = tiny_config();
    cfg.model.layers = 5, cfg.model.shortcut = Shortcut::X0;
    Tiny t(cfg);
    for (const Tensor& tensor : whole_tensors(t.d)) {
        const bool keeps = !strcmp(tensor.param.name, "residw"), adds = !strcmp(tensor.param.name, "x0w");
        if (!keeps && !adds) continue;
        const double depth = tensor.layer / 4., expected = keeps ? 1.15 - 0.1 * depth : 0.2 - 0.15 * depth;
        EXPECT_NEAR(double(t.whole(tensor)[0]), expected, 1e-6);
    }
}

}  // namespace PRECISION
