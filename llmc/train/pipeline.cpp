#include "llmc/train/pipeline.h"

#include <cmath>

#include "llmc/train/signals.h"

namespace PRECISION {

Pipeline::Pipeline(Gpt& g, Zero& z, int64_t batch_tokens)
    : gpt(g), zero(z), batch_rows(batch_tokens / g.shape.T),
      actions(pipeline_schedule({1, 1, int(batch_rows / z.mesh.dp.size / g.shape.B)}, 0)) {}

double Pipeline::run(Loader& data) {
    const double tokens = double(batch_rows) * gpt.shape.T;
    zero.clear_grads();
    gpt.clear_loss();
    gpt.begin_step();
    Batch batch{};
    for (const Action& action : actions) switch (action.kind) {
        case Action::Forward:
            batch = batch_of(data.next());
            gpt.forward(zero, batch);
            break;
        case Action::Backward:
            gpt.backward(zero, batch, real(1 / tokens));
            break;
        case Action::Send:
        case Action::Recv:
            CHECK(false, "pipeline: one stage has nobody to talk to");
    }
    gpt.end_step(zero.embed_grads().wte);
    return *gpt.loss / tokens;
}

std::optional<Pipeline::Evaluation> Pipeline::evaluate(const Dataset& set, int64_t batches,
                                                       std::span<const uint16_t> bytes) {
    const int64_t all = int64_t(set.rows()), rows = batches ? std::min(all, batches * batch_rows) : all;
    gpt.clear_loss();
    TokenBatch batch;
    int64_t target_bytes = 0;
    for (int64_t row = 0; row < rows; row += gpt.shape.B) {
        if (stop_asked()) return std::nullopt;
        load_batch(batch, set, uint64_t(row), int(std::min<int64_t>(gpt.shape.B, rows - row)));
        gpt.forward(zero, batch_of(batch));
        gpt.head_loss(zero, batch_of(batch));
        for (int32_t id : batch.targets) target_bytes += size_t(id) < bytes.size() ? bytes[size_t(id)] : 0;
    }
    const double sum = *gpt.loss;
    Evaluation e{.loss = sum / (double(rows) * gpt.shape.T), .bits_per_byte = {}};
    if (target_bytes > 0) e.bits_per_byte = sum / std::log(2.0) / double(target_bytes);
    return e;
}

}  // namespace PRECISION
