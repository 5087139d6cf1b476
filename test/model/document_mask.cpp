// The document mask: a row of documents has the loss and the gradients of the documents by themselves, for
// every kind of model.
#include "llmc/train/data/loader.h"
#include "test/documents.h"
#include "test/tiny.h"

namespace PRECISION {

static constexpr int kRows = 3, kT = 36;
static constexpr int32_t kEot = 65;

static Config masked(const ModelConfig& kind, Recompute level) {
    Config cfg = tiny_config();
    cfg.model = of_kind(kind, cfg.model);
    cfg.model.document_mask = true;
    cfg.train.micro_batch = kRows, cfg.train.batch_tokens = kRows * cfg.model.context;
    cfg.memory.recompute = level;
    return cfg;
}

// Each document begins with end-of-text, as in shards. The target after a document is the next one's.
static TokenBatch packed_batch(int mean) {
    const test::PackedRows rows(kRows, kT, mean);
    TokenBatch batch;
    batch.B = kRows;
    for (size_t n = 0; n < rows.positions.size(); n++) {
        const bool begins = rows.positions[n] == 0;
        batch.tokens.push_back(begins ? kEot : int32_t(philox(8, 0, n).x[0] % kEot));
        if (n > 0) batch.targets.push_back(batch.tokens.back());
    }
    batch.targets.push_back(kEot);
    find_documents(batch, kT, kEot);
    return batch;
}

// Adds the loss and the gradients of a batch.
static double add(Tiny& t, const Batch& b) {
    t.model.gpt.clear_loss();
    t.model.gpt.forward(t.model.zero, b);
    t.model.gpt.backward(t.model.zero, b, real(1.0 / (kRows * kT)));
    return *t.model.gpt.loss;
}

struct Sums { double loss; std::vector<real> grads; };
static Sums sums_of(Tiny& t, double loss) {
    return {loss, {t.model.shards.grads, t.model.shards.grads + t.size()}};
}

static Sums of_rows(Tiny& t, const TokenBatch& b, bool masks) {
    t.model.zero.clear_grads();
    Batch batch = {.tokens = b.tokens.data(), .targets = b.targets.data(), .B = kRows, .T = kT};
    if (masks) batch.documents = {b.positions.data(), b.ends.data()};
    batch.positions = batch.documents.positions;
    return sums_of(t, add(t, batch));
}

static Sums of_documents(Tiny& t, const TokenBatch& b) {
    t.model.zero.clear_grads();
    double loss = 0;
    for (int n = 0; n < kRows * kT;) {
        const int rows = b.ends[size_t(n)] - n % kT;
        loss += add(t, {.tokens = &b.tokens[size_t(n)], .targets = &b.targets[size_t(n)], .B = 1, .T = rows});
        n += rows;
    }
    return sums_of(t, loss);
}

static double apart(const Sums& a, const Sums& b) {
    double worst = std::fabs(a.loss - b.loss) / b.loss;
    for (size_t i = 0; i < a.grads.size(); i++)
        worst = std::max(worst, std::fabs(double(a.grads[i]) - double(b.grads[i])));
    return worst;
}

TEST_IF(kIsFp64, rows_of_documents_compute_what_documents_do) {
    set_threads(2);
    for (const ModelConfig& kind : kKinds)
        for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block}) {
            Tiny t(masked(kind, level));
            t.shake();
            for (const int mean : {2, 9, 30}) {
                const TokenBatch b = packed_batch(mean);
                const Sums expected = of_documents(t, b);
                const double with = apart(of_rows(t, b, true), expected);
                const double without = apart(of_rows(t, b, false), expected);
                EXPECT(with < 1e-11, "kind %zu, mean %d: %.2g apart", size_t(&kind - kKinds), mean, with);
                EXPECT(without > 1e-5, "kind %zu, mean %d: the mask has no effect", size_t(&kind - kKinds),
                       mean);
            }
        }
}

TEST_IF(kIsFp64, documents_begin_with_their_row_or_end_of_text) {
    TokenBatch b;
    b.B = 2, b.tokens = {9, 1, 2, 3, 9, 9, 7, 4, 5, 6, 9, 8};
    find_documents(b, 6, 9);
    EXPECT(b.positions == std::vector<int32_t>({0, 1, 2, 3, 0, 0, 0, 1, 2, 3, 0, 1}));
    EXPECT(b.ends == std::vector<int32_t>({4, 4, 4, 4, 5, 6, 4, 4, 4, 4, 6, 6}));
}

}  // namespace PRECISION
