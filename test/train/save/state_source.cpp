// Every source of state gives a rank its share, on any mesh, bit for bit: a checkpoint, an import, random
// numbers, and an image in the memory of other ranks.
#include "llmc/train/save/state_source.h"

#include <filesystem>
#include <mutex>

#include "llmc/comm/launch/launch.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/save/formats/formats.h"
#include "test/rounded_state.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

struct Where {
    int dp, tp, pp, zero;
    bool offload = false;
    OptimizerKind optimizer = OptimizerKind::Adamw;
    Rounded rounded = Rounded::Nothing;
};

static Config config_on(const Where& at) {
    Config cfg = tiny_config();
    cfg.model = {.layers = 5, .heads = 4, .channels = 24, .context = 13, .vocab = 67, .init = "random"};
    cfg.train.batch_tokens = 12 * 13, cfg.train.micro_batch = 1;
    cfg.optimizer.kind = at.optimizer, cfg.optimizer.stochastic_rounding = kIsBf16;
    cfg.run.dir = test::folder(TEST_PRECISION "_sources");
    cfg.run.threads = 1, cfg.checkpoint.async = false;
    cfg.parallel.ranks = at.dp * at.tp * at.pp, cfg.parallel.tp = at.tp, cfg.parallel.pp = at.pp;
    cfg.parallel.zero = at.zero;
    if (at.offload) cfg.memory.offload = Offload::Optimizer;
    round_state(cfg.optimizer, at.rounded);
    fs::create_directories(cfg.run.dir);
    return cfg;
}

static void on_ranks(const Config& cfg, const std::function<void(Tiny&)>& body) {
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        body(t);
        return 0;
    });
}

// What all ranks would save, in memory: bytes[k] has the bytes of the piece whose `at` is k.
struct Image {
    std::vector<SavedPiece> pieces;
    std::vector<std::vector<std::byte>> bytes;
    std::mutex mutex;

    void add(const Shards& shards) {
        const RankShare share = share_to_save(shards);
        const auto data = share.data(shards);
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < data.size(); i++) {
            SavedPiece p = share.pieces[i];
            p.at = bytes.size();
            pieces.push_back(p);
            bytes.emplace_back(data[i].begin(), data[i].end());
        }
    }
    StateSource source() const {
        return saved_state("an image", pieces, [this](const SavedPiece& p, Interval of_piece) {
            return bytes[p.at].data() + of_piece.begin;
        });
    }
    // Whole arrays, by "tensor array", whatever the mesh.
    std::map<std::string, std::vector<std::byte>> whole() const {
        std::map<std::string, std::vector<std::byte>> arrays;
        for (const SavedPiece& p : pieces) {
            const size_t width = p.shape.size() > 1 ? size_t(p.shape[1]) : 1;
            const size_t element = p.bytes() / p.elements(), row_bytes = p.bytes() / size_t(p.extent[0]);
            auto& to = arrays[p.tensor + " " + p.array];
            to.resize(size_t(p.shape[0]) * width * element);
            const size_t col = p.start.size() > 1 ? size_t(p.start[1]) : 0;
            for (size_t r = 0; r < size_t(p.extent[0]); r++)
                memcpy(&to[((size_t(p.start[0]) + r) * width + col) * element],
                       &bytes[p.at][r * row_bytes], row_bytes);
        }
        return arrays;
    }
};

static void expect_same(const Image& a, const Image& b, const char* what) {
    const auto own = a.whole(), restored = b.whole();
    EXPECT(own.size() > 20 && own.size() == restored.size(), "%s: %zu arrays, %zu restored", what, own.size(),
           restored.size());
    for (const auto& [name, bytes] : own)
        EXPECT(restored.contains(name) && restored.at(name) == bytes, "%s: '%s' differs", what, name.c_str());
}

// Ranks of another mesh continue from the memory of ranks that are gone, and from their checkpoint.
TEST(an_image_in_memory_restores_another_mesh) {
    constexpr auto kMuon = OptimizerKind::Muon;
    const struct { Where from, to; } moves[] = {
        {{2, 2, 1, 1}, {1, 1, 3, 0}}, {{1, 2, 2, 0}, {4, 1, 1, 3}}, {{3, 1, 1, 3}, {1, 4, 1, 0, true}},
        {{3, 1, 1, 2, false, kMuon}, {1, 2, 2, 1, false, kMuon}},
        {{2, 1, 2, 1, true, kMuon, kMostRounded}, {1, 4, 1, 0, false, kMuon, kMostRounded}}};
    for (const auto& [from, to] : moves) {
        Image image, from_memory, from_disk;
        const Config saver = config_on(from), reader = config_on(to);
        std::string folder;
        on_ranks(saver, [&](Tiny& t) {
            train_steps(t, 2);
            image.add(t.model.shards);
            Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
            RunState state;
            state.step = 2;
            checkpoint.save(state, false);
            if (t.model.mesh.rank == 0) folder = checkpoint.newest;
        });
        on_ranks(reader, [&](Tiny& t) {
            restore(t.model.shards, image.source(), true);
            from_memory.add(t.model.shards);
            const Origin origin = open_checkpoint(folder, t.model.mesh.world);
            restore(t.model.shards, random_weights(t.d, 9));
            restore(t.model.shards, checkpoint_state(origin.folder, origin.manifest), true);
            from_disk.add(t.model.shards);
        });
        expect_same(image, from_memory, "memory");
        expect_same(image, from_disk, "disk");
        fs::remove_all(folder);
    }
}

// A step with gradients that are a function of an element's place: every mesh rounds it to the same bits.
static void take_steps(const Where& at, Image& image) {
    Config cfg = config_on(at);
    cfg.optimizer.grad_clip = 0, cfg.optimizer.matrix_lr = 0;
    on_ranks(cfg, [&](Tiny& t) {
        Shards& shards = t.model.shards;
        for (const Tensor& tensor : shards.layout.tensors) {
            const Interval all = shards.layout.in_bucket(tensor);
            const Interval here = common(all, shards.home_of(tensor.bucket, Kept::Gradients).elements);
            for (const Piece& p : pieces_of(tensor, here.from(all.begin)))
                for (size_t i = 0; i < p.count(); i++) {
                    const size_t row = p.row + i / p.cols, col = p.col + i % p.cols;
                    const size_t place = tensor.global + row * size_t(tensor.param.whole_cols) + col;
                    *shards.gradient(tensor.bucket, all.begin + p.at + i) = real(std::sin(double(place)));
                }
        }
        const double squares = 1, loss = 1;
        t.model.optimizer->clip(&squares, &loss);
        for (int step = 0; step < 2; step++) t.model.optimizer->update(1e-2, step);
        image.add(shards);
    });
}

TEST(stochastic_rounding_knows_no_mesh) {
    for (const OptimizerKind kind : {OptimizerKind::Adamw, OptimizerKind::Muon})
        for (const Rounded r : rounded_kinds()) {
            Image one;
            take_steps({1, 1, 1, 0, false, kind, r}, one);
            for (Where at : {Where{3, 1, 1, 1}, Where{2, 2, 1, 2}, Where{1, 4, 1, 0},
                             Where{2, 1, 2, 3, true}}) {
                at.optimizer = kind, at.rounded = r;
                const std::string what = fmt::format("dp {} tp {} pp {}{}", at.dp, at.tp, at.pp, name_of(r));
                Image there;
                take_steps(at, there);
                expect_same(one, there, what.c_str());
            }
        }
}

// Moments in full are rounded to the nearest bf16, and those in bf16 are kept.
TEST(moments_of_another_type_are_read) {
    const auto trained = [](const Where& at, Image& image) {
        on_ranks(config_on(at), [&](Tiny& t) {
            train_steps(t, 2);
            image.add(t.model.shards);
        });
    };
    const auto read_by = [](const Where& at, const Image& from) {
        std::vector<real> m;
        on_ranks(config_on(at), [&](Tiny& t) {
            restore(t.model.shards, from.source(), true);
            m = t.values("m");
        });
        return m;
    };
    const Where full = {1, 1, 1, 0}, rounded = {1, 1, 1, 0, false, OptimizerKind::Adamw, Rounded::Moments};
    Image in_full, in_bf16;
    trained(full, in_full), trained(rounded, in_bf16);
    const std::vector<real> own = read_by(full, in_full), narrowed = read_by(rounded, in_full);
    size_t other = 0;
    for (size_t i = 0; i < own.size(); i++) {
        other += own[i] != narrowed[i];
        EXPECT(narrowed[i] == real(bfloat16(float(own[i]))), "moment %zu", i);
    }
    EXPECT(other > own.size() / 2, "%zu of %zu are rounded", other, own.size());
    EXPECT(read_by(full, in_bf16) == read_by(rounded, in_bf16), "moments in bf16 change");
}

// Without masters the rounded weights of the others go on; masters begin as weights that had none.
TEST_IF(kIsBf16, weights_with_and_without_masters_are_read) {
    const Where with = {1, 1, 1, 0}, without = {1, 1, 1, 0, false, OptimizerKind::Adamw, Rounded::Weights};
    for (const auto& [from, to] : {std::pair(with, without), {without, with}, {without, without}}) {
        Image image;
        on_ranks(config_on(from), [&](Tiny& t) {
            train_steps(t, 2);
            image.add(t.model.shards);
        });
        on_ranks(config_on(to), [&](Tiny& t) {
            restore(t.model.shards, image.source(), true);
            Image read;
            read.add(t.model.shards);
            auto own = image.whole(), there = read.whole();
            for (const Tensor& w : whole_tensors(t.d)) {
                const std::string weights = w.name + " weights", masters = w.name + " master";
                EXPECT(there[weights] == own[weights], "%s", weights.c_str());
                if (to.rounded != Rounded::Nothing) continue;
                const std::vector<real> whole = t.whole(w);
                const auto* const stored = reinterpret_cast<const bfloat16*>(own[weights].data());
                EXPECT(std::equal(whole.begin(), whole.end(), stored), "%s", masters.c_str());
            }
        });
    }
}

// Programs in fp32 and fp64 (--export) read weights that were saved without masters.
TEST_IF(kIsFp64, other_precisions_read_weights_without_masters) {
    Image image;
    std::vector<real> before, after;
    on_ranks(config_on({1, 1, 1, 0}), [&](Tiny& t) {
        image.add(t.model.shards);
        before.assign(t.model.shards.params, t.model.shards.params + t.size());
        for (SavedPiece& p : image.pieces)
            if (p.array == "master") p.array = "weights";
        restore(t.model.shards, random_weights(t.d, 9));
        restore(t.model.shards, image.source());
        after.assign(t.model.shards.params, t.model.shards.params + t.size());
    });
    EXPECT(before == after, "the weights differ");
}

// Weights of random numbers and of an import are the same on every mesh, the masters as well.
TEST(weights_are_the_same_on_every_mesh) {
    const std::string file = test::folder(TEST_PRECISION "_sources.bin");
    Image random, import;
    on_ranks(config_on({1, 1, 1, 0}), [&](Tiny& t) {
        random.add(t.model.shards);
        t.shake();
        export_to({.shape = t.cfg.model, .layout = t.model.shards.layout, .read = t.reads(),
                   .tokenizer = nullptr, .bf16 = false}, "llmc:" + file);
        load_weights(t.model.shards, "llmc:" + file);
        import.add(t.model.shards);
    });
    for (const Where& to : {Where{3, 1, 1, 3}, Where{2, 2, 1, 1}, Where{1, 1, 5, 0}, Where{1, 4, 1, 0}}) {
        Image random_here, import_here;
        on_ranks(config_on(to), [&](Tiny& t) {
            random_here.add(t.model.shards);
            load_weights(t.model.shards, "llmc:" + file);
            import_here.add(t.model.shards);
        });
        expect_same(random, random_here, "random");
        expect_same(import, import_here, "import");
    }
}

}  // namespace PRECISION
