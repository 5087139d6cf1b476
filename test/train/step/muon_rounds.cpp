// Muon's matrices on the ranks of the shard axis: each rank's matrices, and their memory.
#include <map>
#include <memory>
#include <optional>

#include "test/zero.h"

namespace PRECISION {

// A rank of a described mesh, without memory.
struct Described {
    Config cfg = zero_config(1, 3);
    std::unique_ptr<RankMesh> mesh;
    std::optional<Shards> shards;
    std::optional<Zero> zero;
    std::optional<Muon> muon;
    Described(int ranks, int rank, bool gpt2 = false) {
        ModelConfig& m = cfg.model;
        if (gpt2) m.layers = 4;
        else m.kv_heads = 1, m.activation = Activation::Swiglu, m.ffn_channels = 40;
        cfg.parallel.ranks = ranks, cfg.optimizer.kind = OptimizerKind::Muon;
        mesh = described_mesh(cfg.parallel, ranks, rank);
        const Dims d = dims_of(cfg, cfg.model.vocab);
        shards.emplace(d, whole_model(d.L), mesh->mesh,
                       ShardOptions{.state = Optimizer::slots(cfg.optimizer),
                                    .sharding = sharding_of(3, ranks),
                                    .trailing = Optimizer::trailing(cfg.optimizer, d)});
        zero.emplace(*shards);
        muon.emplace(cfg.optimizer, 1, *zero);
    }
};

using Ranks = std::vector<std::unique_ptr<Described>>;

// A deal: what a rank takes is what others give.
static void expect_exchanged(const Ranks& all, size_t round, size_t deal) {
    const auto dealt = [&](size_t rank) -> const Muon::Deal& { return all[rank]->muon->rounds[round][deal]; };
    for (size_t i = 0; i < all.size(); i++) {
        size_t taken = 0;
        for (size_t k = 0; k < all.size(); k++) {
            taken += dealt(k).given[i];
            EXPECT(dealt(i).taken[k] == dealt(k).given[i], "round %zu: from %zu to %zu", round, k, i);
        }
        const bool has = i < dealt(0).matrices.size();
        EXPECT(taken == (has ? dealt(0).matrices[i].here() : 0), "%zu elements", taken);
    }
}

// The runs of a round on a rank follow one another, deal by deal.
static void expect_runs(const Muon& muon, size_t round) {
    size_t elements = 0, given = 0;
    for (const Muon::Deal& deal : muon.rounds[round]) {
        EXPECT(deal.at == given, "a deal begins at %zu, after %zu elements", deal.at, given);
        for (const size_t count : deal.given) given += count;
    }
    for (const Muon::MatrixRun& p : muon.runs_of(round)) {
        EXPECT(p.at == elements, "a run begins at %zu of %zu", p.at, elements);
        elements += p.elements.count;
    }
    EXPECT(elements == given, "%zu of %zu elements", elements, given);
}

// On as many ranks as one can think of: each matrix has one rank, which gets the elements that others give;
// the ranks wait little for each other; and a bucket's matrices are in the rounds that its weights wait for.
TEST(matrices_are_dealt_over_the_ranks) {
    for (const int ranks : {1, 2, 3, 7, 33}) {
        Ranks all;
        for (int rank = 0; rank < ranks; rank++)
            all.push_back(std::make_unique<Described>(ranks, rank));
        const std::vector<Muon::Round>& rounds = all[0]->muon->rounds;
        size_t matrices = 0, elements = 0, largest = 0, waited = 0, deals = 0;
        for (size_t r = 0; r < rounds.size(); r++) {
            for (const Muon::Deal& deal : rounds[r]) {
                size_t most = 0;
                for (const Muon::Matrix& m : deal.matrices) {
                    elements += m.all(), most = std::max(most, m.all());
                    EXPECT(r < all[0]->muon->rounds_until[size_t(m.tensor->bucket)], "round %zu is too late",
                           r);
                }
                matrices += deal.matrices.size(), waited += most, largest = std::max(largest, most);
                expect_exchanged(all, r, size_t(&deal - rounds[r].data()));
                deals++;
            }
            for (const auto& rank : all) expect_runs(*rank->muon, r);
        }
        EXPECT(matrices == 5 * 7 && deals == (matrices + size_t(ranks) - 1) / size_t(ranks));
        EXPECT(waited <= largest + elements / size_t(ranks), "%zu elements in a row, of %zu on %d ranks",
               waited, elements, ranks);
    }
}

// Two ranks, four blocks of GPT-2 with 24 channels, in units of 64 elements. A shard has 59 of the 118
// units of a block: 10 of biases and norms, attprojw (9), fcw (36), 4 of qkvw; then 23 of qkvw, and
// fcprojw (36). Odd blocks are reversed, so each rank owns two of fcw. Rank 1 owns 12 of the 16 matrices
// of 9 units: two travel whole. Of the four that are cut, one slice travels: 4, 5, 4 and 5 units.
TEST(matrices_stay_where_they_lie) {
    Ranks all;
    for (int rank : {0, 1}) all.push_back(std::make_unique<Described>(2, rank, true));
    size_t travelling = 0, elements = 0;
    for (size_t rank = 0; rank < 2; rank++)
        for (const Muon::Round& round : all[rank]->muon->rounds)
            for (const Muon::Deal& deal : round) {
                elements += deal.given[0] + deal.given[1];
                travelling += deal.given[1 - rank];
            }
    EXPECT(elements == 4 * 108 * 64, "%zu elements", elements);
    EXPECT(travelling == 36 * 64, "%zu of %zu elements travel", travelling, elements);
}

// On CPUs one product fills the cores: a round is one deal. On GPUs a round has several, of one shape.
TEST(rounds_of_a_gpu_are_batches_of_one_shape) {
    for (const bool gpu : {false, true})
        for (const int ranks : {1, 2, 3}) {
            const Target device{Target::Cuda, 0};
            if (gpu) context.target = &device;
            const Described rank(ranks, 0);
            context.target = nullptr;
            size_t most = 0;
            for (const Muon::Round& round : rank.muon->rounds) {
                most = std::max(most, round.size());
                const Muon::Matrix& first = round.front().matrices.front();
                for (const Muon::Deal& deal : round)
                    for (const Muon::Matrix& m : deal.matrices)
                        EXPECT(round.size() == 1 || (m.rows == first.rows && m.cols == first.cols),
                               "%d ranks: %d x %d beside %d x %d", ranks, m.rows, m.cols, first.rows,
                               first.cols);
            }
            const size_t expected = !gpu ? 1 : ranks == 1 ? 10 : ranks == 2 ? 5 : 3;
            EXPECT(most == expected, "%d ranks: %zu matrices in a batch", ranks, most);
        }
}

// Muon's update needs memory for a few whole matrices, and AdamW's memory less second moments.
TEST(memory_is_that_of_adamw_and_a_few_matrices) {
    for (const int ranks : {1, 2, 12})
        for (int zero = 0; zero < 4; zero++) {
            std::map<std::string, size_t> plans[2];
            for (const bool muon : {false, true}) {
                Config cfg = zero_config(ranks, zero, 1);
                if (muon) cfg.optimizer.kind = OptimizerKind::Muon;
                const auto mesh = described_mesh(cfg.parallel, ranks, 0);
                for (const auto& row : Model(cfg, mesh->mesh, 1, false).arena.plan())
                    plans[muon][row.name] = row.bytes;
            }
            const size_t largest = size_t(24 * 96);             // of fc
            EXPECT(plans[1]["matrices of Muon"] < 16 * largest * sizeof(real), "%zu bytes of matrices",
                   plans[1]["matrices of Muon"]);
            const size_t moments = plans[1]["second moments"], of_adamw = plans[0]["second moments"];
            EXPECT(ranks < 12 ? moments < of_adamw : moments <= of_adamw, "%zu bytes, with AdamW %zu",
                   moments, of_adamw);
            for (const auto& [row, bytes] : plans[0])
                if (row != "second moments" && row != "rounding to pages" && row != "gradient norm")
                    EXPECT(plans[1][row] == bytes, "%d ranks, ZeRO %d: %s: %zu bytes, with AdamW %zu", ranks,
                           zero, row.c_str(), plans[1][row], bytes);
        }
}

// One rank owns a trailing tensor whole where an order of them allows it. Two shards of 59 x 64 elements, of
// which 10 x 64 lead: fcw (36) and attprojw (9) are whole in the first, fcprojw (36) in the second, and qkvw
// (27) is cut.
TEST(trailing_tensors_lie_whole_in_a_shard) {
    const std::vector<std::string> names = {"qkvw", "attprojw", "fcw", "fcprojw"};
    const Dims d = make_dims({.layers = 5, .heads = 12, .channels = 24, .context = 7, .vocab = 301}, Axis());
    const auto whole = [&](size_t shards, const std::vector<std::string>& trailing) {
        const Layout layout = sharded_layout(d, whole_model(5), shards, trailing);
        std::string text;
        for (const std::string& name : names)
            for (const Tensor& t : layout.tensors) {
                const size_t shard = layout.size(t.bucket) / shards, at = t.start - layout.start(t.bucket);
                if (t.name == "h.3." + name && at / shard == (at + t.param.count() - 1) / shard)
                    text += name + " ";
            }
        return text;
    };
    EXPECT(whole(2, names) == "attprojw fcw fcprojw ", "%s", whole(2, names).c_str());
    EXPECT(whole(2, {}) == "qkvw attprojw fcprojw ", "in the table's order: %s", whole(2, {}).c_str());
    EXPECT(whole(1, names) == "qkvw attprojw fcw fcprojw ", "%s", whole(1, names).c_str());
}

}  // namespace PRECISION
