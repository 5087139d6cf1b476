#include "llmc/train/save/run_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "llmc/base/check.h"
#include "llmc/base/json/json_value.h"

inline namespace saves {

static std::optional<double> score_against(std::span<const double> values, double v) {
    const double n = double(values.size());
    double mean = 0, square = 0;
    for (double x : values) mean += x;
    mean /= n;
    for (double x : values) square += (x - mean) * (x - mean) / n;
    if (!(square > 0)) return std::nullopt;
    return (v - mean) / std::sqrt(square);
}

std::optional<double> Trailing::score(double v) {
    if (!std::isfinite(v)) return std::nullopt;    // it would stay in the window
    std::optional<double> z;
    if (values.size() == kWindow) {
        z = score_against(values, v);
        values[next] = v;
        next = (next + 1) % kWindow;
    } else values.push_back(v);
    return z;
}

std::optional<double> Trailing::near_score(double v, size_t but) const {
    const size_t n = values.size();
    if (n < but + kNear) return std::nullopt;
    std::vector<double> near;
    for (size_t i = 0; i < kNear; i++) near.push_back(values[(next + 2 * n - but - kNear + i) % n]);
    return score_against(near, v);
}

static Json json_of(const Trailing& t) {
    return Json::Members{{"values", Json::List(t.values.begin(), t.values.end())}, {"next", t.next}};
}

static Json json_of(const std::map<std::string, Trailing>& windows) {
    Json::Members j;
    for (const auto& [name, window] : windows) j.emplace_back(name, json_of(window));
    return j;
}

static Json json_of(const std::optional<Validation>& v) {
    if (!v) return nullptr;
    Json::Members j = {{"step", v->step}, {"loss", v->loss}};
    if (v->bits_per_byte) j.emplace_back("bits_per_byte", *v->bits_per_byte);
    return j;
}

static constexpr const char* kRandom = "philox4x32-10";     // a function of seed, stream and index: no state

void RunState::add(const Validation& v) {
    if (!first) first = v;
    last = v;
    evaluated = true;
}

void RunState::advance(int64_t rows, int64_t context) {
    step++;
    sample += rows;
    tokens += rows * context;
    evaluated = sampled = scored = false;
}

// A step that is not finite neither ends trouble nor counts as above z: its figures are no numbers.
bool RunState::count(const TrainConfig& cfg, int64_t number, double step_loss, double step_norm,
                     bool finite) {
    skipped += !finite;
    const bool skips = !finite && skipped > cfg.max_skips;
    if (!cfg.rollback.every) {
        trouble = {};
        return skips;
    }
    const size_t before = size_t(trouble.above);
    const double z = std::max(loss.near_score(step_loss, before).value_or(0),
                              norm.near_score(step_norm, before).value_or(0));
    const bool above = finite && z > cfg.rollback.z;
    if (finite && !above) trouble = {};
    else if (trouble.first == 0) trouble.first = number;
    trouble.above += above;
    return skips || trouble.above >= cfg.rollback.steps;
}

Due due_at(const Config& cfg, const RunState& state, bool texts) {
    const int64_t step = state.step;
    const bool last = step >= cfg.train.steps;
    return {.evaluation = !state.evaluated && cfg.eval.due(step, last),
            .tasks = !state.scored && cfg.eval.tasks_due(step, last),
            .text = texts && !state.sampled && cfg.sample.due(step, last)};
}

std::string to_json(const RunState& s) {
    return to_text(Json::Members{
        {"step", s.step}, {"loader", Json::Members{{"sample", s.sample}}}, {"tokens", s.tokens},
        {"rng", Json::Members{{"kind", kRandom}, {"seed", s.seed}}},
        {"skipped", s.skipped}, {"rollbacks", s.rollbacks},
        {"trouble", Json::Members{{"first", s.trouble.first}, {"above", s.trouble.above}}},
        {"evaluated", s.evaluated}, {"sampled", s.sampled}, {"scored", s.scored},
        {"loss", json_of(s.loss)}, {"norm", json_of(s.norm)}, {"tensors", json_of(s.tensors)},
        {"first_validation", json_of(s.first)}, {"last_validation", json_of(s.last)},
        {"contents", json_of(s.contents)}});
}

static int64_t count_of(const Json& v, const char* key) {
    const int64_t n = v.at(key).integer();
    if (n < 0) throw std::runtime_error(fmt::format("{} = {}, expected at least 0", key, n));
    return n;
}

static Trouble trouble_of(const Json* v) {
    if (!v) return {};                      // absent: of an older version
    return {.first = count_of(*v, "first"), .above = count_of(*v, "above")};
}

static int64_t seed_of(const Json& rng) {
    const std::string kind = rng.at("kind").string();
    if (kind != kRandom) throw std::runtime_error("random numbers of kind " + kind + ", expected " + kRandom);
    return rng.at("seed").integer();
}

static Trailing trailing_of(const Json& v) {
    Trailing t;
    for (const Json& x : v.at("values").list()) t.values.push_back(x.number());
    t.next = v.at("next").natural();
    if (t.next > 0 && t.next >= t.values.size())
        throw std::runtime_error("a window of statistics that begins behind its end");
    if (t.values.size() == Trailing::kWindow) return t;
    // of a version with another window: the newest values, the oldest of them first
    std::rotate(t.values.begin(), t.values.begin() + ptrdiff_t(t.next), t.values.end());
    const size_t more = t.values.size() - std::min(t.values.size(), Trailing::kWindow);
    t.values.erase(t.values.begin(), t.values.begin() + ptrdiff_t(more));
    t.next = 0;
    return t;
}

static std::map<std::string, Trailing> windows_of(const Json* v) {
    std::map<std::string, Trailing> windows;
    if (v)                                  // absent: of an older version
        for (const auto& [name, window] : v->members()) windows[name] = trailing_of(window);
    return windows;
}

// JSON has no number that is not finite: such a loss is written as null.
static double number_of(const Json& v) {
    return v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.number();
}

static std::optional<Validation> validation_of(const Json& v) {
    if (v.is_null()) return std::nullopt;
    Validation r{count_of(v, "step"), number_of(v.at("loss")), {}};
    if (const Json* bits = v.find("bits_per_byte")) r.bits_per_byte = number_of(*bits);
    return r;
}

RunState run_state_of(const std::string& text) {
    const Json v = parse_json(text);
    return {.step = count_of(v, "step"), .sample = count_of(v.at("loader"), "sample"),
            .tokens = v.find("tokens") ? count_of(v, "tokens") : -1,
            .seed = seed_of(v.at("rng")), .skipped = count_of(v, "skipped"),
            .rollbacks = v.find("rollbacks") ? count_of(v, "rollbacks") : 0,
            .trouble = trouble_of(v.find("trouble")),
            .evaluated = v.at("evaluated").boolean(), .sampled = v.at("sampled").boolean(),
            .scored = v.find("scored") && v.at("scored").boolean(),     // absent: of an older version
            .loss = trailing_of(v.at("loss")), .norm = trailing_of(v.at("norm")),
            .tensors = windows_of(v.find("tensors")),
            .first = validation_of(v.at("first_validation")), .last = validation_of(v.at("last_validation")),
            .contents = contents_of_json(v.find("contents"))};
}

}  // namespace saves
