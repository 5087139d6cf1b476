// Spikes: a line once per event, and the tensor that moved first; rows and windows.
#include <cmath>

#include "llmc/base/json/json_value.h"
#include "llmc/train/log/health_rows.h"
#include "test/tiny.h"

namespace PRECISION {

// A norm around `mean` that varies by 1%.
static double steady(int i, double mean) { return mean * (1 + 0.01 * std::sin(i * 0.7)); }

struct Sequence {
    std::map<std::string, Trailing> windows;
    Spikes spikes{{"wte", "h.0.fcw", "h.1.fcw"}, windows};
    Trailing loss, norm;
    std::vector<Spike> seen;
    // of the tensors, and of all
    void step(int s, double a, double b, double c, double all, double of_loss) {
        const StepFigures r{.step = s, .loss = of_loss, .norm = all, .loss_z = loss.score(of_loss),
                           .norm_z = norm.score(all)};
        const double norms[] = {a, b, c};
        if (const auto spike = spikes.see(r, norms)) seen.push_back(*spike);
    }
    void quiet(int from, int to) {
        for (int s = from; s < to; s++)
            step(s, steady(s, 1), steady(s + 1, 2), steady(s + 2, 3), steady(s + 3, 4), steady(s + 4, 5));
    }
};

TEST_IF(!kIsBf16 && !kIsFp64, the_first_tensor_that_moved_is_named) {
    Sequence q;
    q.quiet(1, 230);
    q.step(230, steady(230, 1), 2.5, steady(2, 3), steady(3, 4), steady(4, 5));
    EXPECT(q.seen.empty(), "neither loss nor norm moved");
    q.step(231, 9, steady(3, 2), 40, 14.2, steady(5, 5));       // other tensors by more, and later
    q.step(232, 9, steady(3, 2), 40, 14.2, 9);                  // the same event
    EXPECT(q.seen.size() == 1, "%zu spikes", q.seen.size());
    const Spike& s = q.seen.at(0);
    EXPECT(s.step == 231 && s.of == std::string("norm") && s.first && s.first->name == "h.0.fcw" &&
           s.first->step == 230, "%s", text_of(s).c_str());
    const std::string text = text_of(s);
    for (const char* part : {"norm 14.2 is ", "standard deviations above its last 200 steps",
                             "first moved: h.0.fcw (z ", " at step 230)"})
        EXPECT(text.find(part) != std::string::npos, "'%s' in %s", part, text.c_str());
    const Json row = parse_json(spike_row(s));
    EXPECT(row.at("first").string() == "h.0.fcw" && row.at("first_step").natural() == 230 &&
           row.at("z").number() > 6);
    // windows forget; a new event, of two tensors at once: the larger score
    q.quiet(233, 500);
    q.step(500, 1.2, 20, steady(2, 3), steady(3, 4), 7);
    EXPECT(q.seen.size() == 2 && q.seen[1].of == std::string("loss") && q.seen[1].first &&
           q.seen[1].first->name == "h.0.fcw" && q.seen[1].first->step == 500, "%zu", q.seen.size());
    // an old move has led to nothing
    q.quiet(501, 800);
    q.step(800, 3, steady(1, 2), steady(2, 3), steady(3, 4), steady(4, 5));
    q.quiet(801, 820);
    q.step(820, steady(0, 1), steady(1, 2), steady(2, 3), 9, steady(4, 5));
    EXPECT(q.seen.size() == 3 && !q.seen[2].first &&
           text_of(q.seen[2]).find("no tensor") != std::string::npos, "%zu", q.seen.size());
}

TEST_IF(!kIsBf16 && !kIsFp64, without_norms_of_tensors_the_setting_is_named) {
    std::map<std::string, Trailing> windows;
    Spikes spikes({}, windows);
    const StepFigures r{.step = 300, .loss = 5.5, .norm = 1, .loss_z = 7.25, .norm_z = 1};
    const auto spike = spikes.see(r, {});
    EXPECT(spike && text_of(*spike) == "loss 5.5 is 7.2 standard deviations above its last 200 steps; with "
                                       "log.health the log names the tensor that moved first, 200 steps "
                                       "after a start", "%s", spike ? text_of(*spike).c_str() : "none");
    EXPECT(!spikes.see({.step = 301, .loss_z = 6}, {}), "6 is not over 6");
}

// A run of 210 steps in which a matrix of one layer is then scaled.
TEST_IF(!kIsBf16 && !kIsFp64, a_scaled_layer_is_found_in_a_run) {
    Config cfg = tiny_config();
    cfg.model = {.layers = 4, .heads = 2, .channels = 16, .context = 13, .vocab = 66, .init = "random"};
    cfg.train = {.steps = 300, .batch_tokens = 8 * 13, .micro_batch = 8, .max_skips = 0};
    cfg.optimizer.lr = 1e-4, cfg.log.health = 1000;
    cfg.run.threads = 1;
    set_threads(1);
    Tiny t(cfg);
    RunState state;
    std::optional<Spikes> spikes(std::in_place, t.model.health->names, state.tensors);
    Trailing loss, norm;
    Loader data(t.set, 8, 0, 0, 1);
    std::optional<Spike> spike;
    for (int s = 0; s < 211 && !spike; s++) {
        if (s == 150) {                                     // a resumed run goes on with the windows
            state = run_state_of(to_json(state));
            spikes.emplace(t.model.health->names, state.tensors);
        }
        if (s == 210) {
            const Tensor& w = t.tensor("h.2.fcprojw");
            for (size_t i = 0; i < w.param.count(); i++) t.masters()[w.start + i] *= 40;
        }
        t.model.pipeline.run(data);
        enqueue_update(t.model, learning_rate(cfg.optimizer, cfg.train.steps, s), s);
        const StepResult r = t.model.statistics->read();
        EXPECT(r.tensor_norms.size() == t.model.health->names.size());
        spike = spikes->see({.step = s + 1, .loss = r.loss, .norm = r.norm, .loss_z = loss.score(r.loss),
                            .norm_z = norm.score(r.norm)}, r.tensor_norms);
    }
    EXPECT(spike && spike->step == 211 && spike->first && spike->first->name.starts_with("h.2.") &&
           spike->first->step == 211, "%s", spike ? text_of(*spike).c_str() : "no spike");
}

// Checkpoints of versions with another window: the newest values, in their order.
TEST_IF(!kIsBf16 && !kIsFp64, windows_of_other_lengths_are_read) {
    for (const size_t length : {128, 200, 256})
        for (const size_t next : {size_t(0), size_t(5)}) {
            std::string values;
            for (size_t i = 0; i < length; i++)             // the value is its age's opposite
                values += fmt::format("{}{}", i ? "," : "", (i + length - next) % length);
            const std::string window = fmt::format(R"({{"values":[{}],"next":{}}})", values, next);
            std::string text = to_json(RunState{});
            const size_t at = text.find(R"("loss":)") + 7;
            text.replace(at, text.find('}', at) + 1 - at, window);
            Trailing loss = run_state_of(text).loss;
            EXPECT(loss.values.size() == std::min(length, Trailing::kWindow), "%zu", loss.values.size());
            // in order, the oldest first
            const double oldest = double(length - loss.values.size());
            EXPECT(loss.values[loss.next] == oldest, "%zu, %zu: %g", length, next, loss.values[loss.next]);
            for (size_t i = 0; i < loss.values.size(); i++)
                EXPECT(loss.values[(loss.next + i) % loss.values.size()] == oldest + double(i));
            EXPECT(loss.score(1000).has_value() == (length >= Trailing::kWindow));
        }
}

TEST_IF(!kIsBf16 && !kIsFp64, rows_have_rms_largest_and_shares) {
    Spread s{.count = 8, .zeros = 2, .nonfinite = 4, .squares = 18, .sum = 6};
    s.largest = 3;
    Health h{.step = 7, .tensors = {{"h.0.fcw", s, s, {}}}, .activations = {{"h.0.x", s}}};
    EXPECT(health_row(h) == "{\"event\":\"health\",\"step\":7,\"tensors\":[{\"name\":\"h.0.fcw\",\"count\":8,"
           "\"weight\":{\"rms\":2.1213203435596424,\"max\":3,\"zeros\":0.25,\"nonfinite\":0.5},"
           "\"grad\":{\"rms\":2.1213203435596424,\"max\":3,\"zeros\":0.25,\"nonfinite\":0.5},"
           "\"update\":{\"rms\":0,\"max\":0,\"zeros\":0,\"nonfinite\":0}}],"
           "\"activations\":[{\"name\":\"h.0.x\",\"count\":8,\"rms\":2.1213203435596424,\"max\":3,"
           "\"zeros\":0.25,\"nonfinite\":0.5}]}\n", "%s", health_row(h).c_str());
    const std::vector<std::string> names = {"wte", "h.0.fcw"};
    const double norms[] = {1.5, kUnknown};
    EXPECT(grad_norms_row(3, names, norms) ==
           "{\"event\":\"grad_norms\",\"step\":3,\"norms\":{\"wte\":1.5,\"h.0.fcw\":null}}\n");
}

}  // namespace PRECISION
