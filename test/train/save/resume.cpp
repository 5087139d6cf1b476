// A resumed run equals an uninterrupted run, bit for bit; every mesh reads the checkpoints of every other
// mesh.
#include <filesystem>
#include <map>

#include "llmc/base/disk/files.h"
#include "llmc/comm/agents/lease.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/save/checkpoint.h"
#include "test/member_of_plan.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

struct MeshCase {
    int ranks, tp = 1, pp = 1, zero = 0, group = 0;
    bool muon = false;
    size_t kind = 0;            // of kKinds
    std::string text() const {
        return fmt::format("{} ranks, tp {}, pp {}, zero {}, group {}{}", ranks, tp, pp, zero, group,
                           muon ? ", Muon" : "");
    }
};

static Config config_on(const MeshCase& m, const std::string& dir) {
    Config cfg;
    cfg.model = {.layers = 4, .heads = 4, .channels = 16, .context = 13, .vocab = 67, .init = "random"};
    cfg.model = of_kind(kKinds[m.kind], cfg.model);
    cfg.train = {.steps = 20, .batch_tokens = 12 * 13, .micro_batch = 1, .max_skips = 0};
    cfg.optimizer.lr = 1e-2, cfg.optimizer.warmup = 2, cfg.optimizer.stochastic_rounding = true;
    cfg.checkpoint.async = false, cfg.checkpoint.keep_last = 0;
    cfg.run.threads = 1, cfg.run.dir = dir;
    cfg.parallel.ranks = m.ranks, cfg.parallel.tp = m.tp, cfg.parallel.pp = m.pp, cfg.parallel.zero = m.zero;
    cfg.parallel.zero_group = m.group;
    if (m.muon) cfg.optimizer.kind = OptimizerKind::Muon;
    return cfg;
}

static std::string fresh(const std::string& name) {
    const std::string dir = test::folder(TEST_PRECISION "_" + name);
    fs::remove_all(dir);
    fs::create_directories(dir);
    return dir;
}

// Trains from a checkpoint (none: from the start) to step `last`, saving after each step that `saves` says.
template <class Saves>
static void train(const MeshCase& m, const std::string& dir, const std::string& from, int64_t last,
                  Saves saves) {
    const Config base = config_on(m, dir);
    const auto body = [&](Config cfg, const Mesh& mesh) {
        Tiny t(cfg, false, mesh);
        Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
        std::optional<Origin> origin;
        if (!from.empty()) origin = open_checkpoint(from, mesh.world);
        RunState state = checkpoint.load_or_init(origin);
        Loader data(t.set, cfg.train.micro_batch, uint64_t(state.sample), mesh.dp.index, mesh.dp.size);
        Trace trace;
        for (; state.step < last; state.step++) {
            if (saves(state.step)) checkpoint.save(state, false);
            train_step(t, data, state.step, trace);
            state.sample += t.model.pipeline.batch_rows;
        }
        checkpoint.save(state, true);
        return 0;
    };
    if (m.ranks == 1) body(base, Mesh());
    else run_threads(base, body);
}

// All files of a checkpoint's shares, by name, and the state of its run.
static std::map<std::string, std::string> shares_of(const std::string& folder) {
    std::map<std::string, std::string> files = {{"state", open_checkpoint(folder).manifest.state}};
    for (const auto& e : fs::directory_iterator(folder))
        if (e.path().extension() == ".safetensors") files[e.path().filename()] = read_file(e.path());
    return files;
}

TEST(going_on_at_every_step_is_bitwise) {
    for (const MeshCase& m : {MeshCase{1}, MeshCase{2, 1, 1, 1}, MeshCase{4, 2, 1, 2},
                              MeshCase{3, 1, 1, 2, 0, true}, MeshCase{4, 2, 1, 2, 0, false, true}}) {
        const std::string straight = fresh("straight");
        train(m, straight, "", 20, [](int64_t) { return true; });
        const auto expected = shares_of(straight + "/step_20");
        EXPECT(int(expected.size()) == m.ranks + 1, "%s: %zu files", m.text().c_str(), expected.size());
        // fp64, and several ranks after their first steps: some steps. AddressSanitizer is eight times slower
        for (int k = 0; k < 20; k += test::kAddressSanitizer || kIsFp64 ? 9 : m.ranks > 1 && k > 2 ? 8 : 1) {
            const std::string again = fresh("again");
            train(m, again, straight + "/step_" + std::to_string(k), 20, [](int64_t) { return false; });
            EXPECT(shares_of(again + "/step_20") == expected, "%s: resumed at %d", m.text().c_str(), k);
        }
    }
}

// The bytes of every array of every tensor, put together from its pieces.
static std::map<std::string, std::string> tensors_of(const std::string& folder) {
    const Origin o = open_checkpoint(folder);
    std::map<std::string, std::string> tensors;
    std::map<std::string, std::string> files = shares_of(folder);
    for (const SavedPiece& p : o.manifest.pieces) {
        const size_t cols = p.shape.size() > 1 ? size_t(p.shape[1]) : 1, element = p.bytes() / p.elements();
        const size_t width = p.extent.size() > 1 ? size_t(p.extent[1]) : 1;
        const size_t col = p.start.size() > 1 ? size_t(p.start[1]) : 0;
        std::string& whole = tensors[p.array + " " + p.tensor];
        whole.resize(size_t(p.shape[0]) * cols * element);
        for (size_t r = 0; r < size_t(p.extent[0]); r++)
            whole.replace(((size_t(p.start[0]) + r) * cols + col) * element, width * element,
                          files[p.file].substr(size_t(p.at) + r * width * element, width * element));
    }
    return tensors;
}

static void expect_all_read_all(const std::vector<MeshCase>& meshes, size_t arrays) {
    std::vector<std::string> from;
    for (const MeshCase& m : meshes) {
        from.push_back(fresh("from" + std::to_string(from.size())));
        train(m, from.back(), "", 2, [](int64_t) { return false; });
    }
    for (size_t i = 0; i < meshes.size(); i++) {
        const auto expected = tensors_of(from[i] + "/step_2");
        EXPECT(expected.size() == arrays, "%zu arrays", expected.size());
        for (const MeshCase& m : meshes) {
            if (test::kAddressSanitizer && (size_t(&m - meshes.data()) + i) % 4) continue;
            const std::string to = fresh("to");
            train(m, to, from[i] + "/step_2", 2, [](int64_t) { return false; });
            EXPECT(tensors_of(to + "/step_2") == expected, "%s, saved by %s", m.text().c_str(),
                   meshes[i].text().c_str());
        }
    }
}

// fp32 has the arrays of fp64.
TEST_IF(kIsFp64 || kIsBf16, every_mesh_reads_what_every_other_wrote) {
    expect_all_read_all({{1}, {2, 1, 1, 0}, {2, 1, 1, 3}, {3, 1, 1, 1}, {3, 1, 1, 2}, {2, 2}, {4, 4},
                         {2, 1, 2}, {4, 1, 4}, {4, 2, 1, 1}, {4, 1, 2, 3}, {4, 1, 1, 2, 2}},
                        (kIsBf16 ? 4u : 3u) * (4 * 12 + 4));
}

// checkpoint.override lets the optimizer change: weights stay, moments begin as zeros.
TEST(another_optimizer_begins_without_moments) {
    for (const bool muon : {false, true}) {
        MeshCase m{1};
        m.muon = muon;
        const std::string dir = fresh("before");
        train(m, dir, "", 3, [](int64_t) { return false; });
        m.muon = !muon;
        Tiny t(config_on(m, fresh("after")));
        Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
        const std::vector<real> initial(t.masters(), t.masters() + t.size());
        (void)checkpoint.load_or_init(open_checkpoint(dir + "/step_3"));
        for (const char* slot : {"m", "v"})
            for (const real x : t.values(slot)) EXPECT(x == 0, "%s is not zero", slot);
        EXPECT(memcmp(t.masters(), initial.data(), initial.size() * sizeof(real)) != 0, "no weights came");
    }
}

// A rank of run.elastic slept while others went on: they noted their plan.
TEST_IF(kIsBf16, a_rank_that_wakes_up_behind_its_plan_publishes_nothing) {
    const std::string dir = fresh("slept");
    test::MemberOfPlan rank(2, 5);
    Config cfg = config_on({1}, dir);
    cfg.checkpoint.keep_last = 1;
    Tiny t(cfg);
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    RunState state = checkpoint.load_or_init(std::nullopt);
    const auto saved = [&](int64_t step) {
        state.step = step;
        checkpoint.save(state, false);
        return saved_steps(posix_disk(), dir);
    };
    EXPECT(claim_run_files(dir, 2, 5) && saved(3) == std::vector<int64_t>{3}, "of its own plan");
    EXPECT(claim_run_files(dir, 2, 6) && saved(4) == std::vector<int64_t>{3}, "of a later generation");
    EXPECT(read_file(dir + "/checkpoints.jsonl").find("step_4") == std::string::npos, "a line of step 4");
    write_file(dir + "/generation", "1 9\n");
    EXPECT(saved(5) == std::vector<int64_t>{5}, "of an earlier controller");
}

// Of 4 matrices in 4 blocks there are no second moments. On two ranks each matrix has one owner, on others
// shards cut them.
TEST_IF(kIsFp64 || kIsBf16, every_mesh_reads_what_muon_wrote) {
    const auto muon = [](MeshCase m) {
        m.muon = true;
        return m;
    };
    const Dims d = dims_of(config_on({2}, ""), 67);
    const Layout layout = sharded_layout(d, whole_model(d.L), 2, muon_tensors(d));
    for (const Tensor& t : layout.tensors) {
        const size_t shard = layout.size(t.bucket) / 2, at = t.start - layout.start(t.bucket);
        const bool whole = at / shard == (at + t.param.count() - 1) / shard;
        EXPECT(whole || !t.trailing, "%s is cut", t.name.c_str());
    }
    expect_all_read_all({muon({1}), muon({2, 1, 1, 3}), muon({3, 1, 1, 1}), muon({4, 2, 1, 3}),
                         muon({4, 1, 2, 2})},
                        (kIsBf16 ? 4u : 3u) * (4 * 12 + 4) - 16);
}

// Blocks with and without value embeddings: 4 x 6 tensors, 2 x 2 and the ends; Muon has 18.
TEST_IF(kIsFp64 || kIsBf16, every_mesh_reads_blocks_of_two_kinds) {
    const auto nano = [](MeshCase m) {
        m.muon = true, m.kind = 10;
        return m;
    };
    expect_all_read_all({nano({1}), nano({4, 2, 1, 3}), nano({4, 2, 2, 0})}, (kIsBf16 ? 4u : 3u) * 30 - 18);
}

}  // namespace PRECISION
