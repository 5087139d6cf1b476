#include "llmc/train/run/generate.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/guard/signals.h"
#include "llmc/train/step/health_meter.h"
#include "llmc/train/step/whole_tensors.h"

namespace PRECISION::inline runs {

Generator::Generator(const Config& cfg, const Mesh& m, Decoder& d, Zero& z)
    : decoder(d), zero(z), mesh(m), sampler{cfg.sample, uint64_t(cfg.run.seed), {}},
      actions(forward_schedule({m.pp.size, int(d.own.part.chunks.size()), 1}, m.pp.index)),
      order(blocks_of(d.own.part)), logits(size_t(d.own.d.V)) {}

// The logits after the last of the tokens; null on ranks without the end of the model.
const floatX* Generator::forward(const int32_t* ids, int count, int t0) {
    const floatX* row = nullptr;
    const size_t message = decoder.own.message_count(count);
    zero.begin_step(order);
    for (const Action& a : actions) switch (a.kind) {
        case Action::Forward:
            if (const floatX* last = decoder.forward(zero, ids, count, t0, a.chunk)) row = last;
            break;
        case Action::Send: mesh.pp.send(decoder.own.output(), message, a.peer); break;
        case Action::Recv: mesh.pp.recv(decoder.own.input(), message, a.peer); break;
        case Action::Backward:
        case Action::Weight: CHECK(false, "generation: a backward");
    }
    return row;
}

// Brings the cache up to the last id and returns the logits after it.
const float* Generator::next_logits(TextState& text) {
    const size_t context = size_t(decoder.own.d.maxT), count = text.ids.size();
    if (count - text.window > context) {
        text.window = count - std::max<size_t>(1, context / 2);
        text.cached = 0;
    }
    const floatX* row = nullptr;
    for (size_t end = count - text.window; text.cached < end;) {
        const size_t fed = std::min(size_t(decoder.own.rows), end - text.cached);
        row = forward(text.ids.data() + text.window + text.cached, int(fed), int(text.cached));
        text.cached += fed;
    }
    if (row) {
        const std::vector<floatX> here = decoder.on_host(row);
        std::copy(here.begin(), here.end(), logits.begin());
    }
    mesh.pp.broadcast(logits.data(), logits.size(), mesh.pp.size - 1);
    return logits.data();
}

// Every rank continues with rank 0's token, or stops after a signal to any rank.
bool Generator::agree(int32_t* token) const {
    const int32_t mine[2] = {*token, stop_asked()};
    std::vector<int32_t> all(2 * size_t(mesh.world.size));
    const int32_t* said = mesh.world.all_gather(all.data(), mine, 2);
    *token = said[0];
    for (int r = 0; r < mesh.world.size; r++)
        if (said[2 * r + 1]) return only_walks();
    return true;
}

std::optional<int32_t> Generator::next(TextState& text, uint64_t stream) {
    const float* row = next_logits(text);
    const auto is_nan = [](float v) { return std::isnan(v); };
    if (!only_walks() && std::all_of(row, row + decoder.own.d.V, is_nan))
        end_not_finite(zero.shards, "sampling: logits");
    int32_t token = only_walks() ? 0 : sampler.draw(row, decoder.own.d.V, stream, text.ids.size());
    if (!agree(&token)) return std::nullopt;
    text.ids.push_back(token);
    return token;
}

std::optional<std::string> Generator::run(const Tokenizer& tokenizer, std::vector<int32_t> ids,
                                          uint64_t stream,
                                          const std::function<void(std::string_view)>& emit) {
    TextState state{.ids = std::move(ids)};
    std::string text;
    for (int i = 0; i < sampler.cfg.tokens; i++) {
        const std::optional<int32_t> token = next(state, stream);
        if (!token) return std::nullopt;
        if (*token == int32_t(tokenizer.eot()) || *token == tokenizer.eos() || *token == turn_end) break;
        const std::string more = tokenizer.decode({&*token, 1});
        text += more;
        if (emit) emit(more);
    }
    return text;
}

}  // namespace PRECISION::runs
