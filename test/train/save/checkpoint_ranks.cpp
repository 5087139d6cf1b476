// Checkpoints of many ranks: a save that fails, and weights whose bits matter.
#include <filesystem>

#include "llmc/base/disk/files.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/save/checkpoint.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

struct Where { int dp, tp, pp, zero; };

static Config config_on(const Where& at, const std::string& dir) {
    Config cfg = tiny_config();
    cfg.model = {.layers = 5, .heads = 4, .channels = 24, .context = 13, .vocab = 67, .init = "random"};
    cfg.train.batch_tokens = 12 * 13, cfg.train.micro_batch = 1;
    cfg.run.dir = dir, cfg.run.threads = 1, cfg.checkpoint.async = false;
    cfg.parallel.ranks = at.dp * at.tp * at.pp, cfg.parallel.tp = at.tp, cfg.parallel.pp = at.pp;
    cfg.parallel.zero = at.zero;
    return cfg;
}

static std::string folder(const char* name) {
    const std::string path = test::folder(TEST_PRECISION "_") + name;
    fs::create_directories(path);
    return path;
}

static void on_ranks(const Config& cfg, const std::function<void(Tiny&)>& body) {
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        body(t);
        return 0;
    });
}

static std::string save(Checkpoint& c, int64_t step) {
    RunState state;
    state.step = step;
    c.newest.clear();
    c.save(state, false);
    return c.newest;
}

// When a rank cannot write, every rank knows, no rank hangs, no file is left, and the next save works.
TEST(a_save_that_fails_fails_on_all_ranks) {
    const std::string dir = folder("gone");
    on_ranks(config_on({3, 1, 1, 1}, dir), [&](Tiny& t) {
        const Axis& world = t.model.mesh.world;
        Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
        const std::string in_the_way = dir + "/step_1.tmp-1/rank_00001.safetensors";
        if (t.model.mesh.rank == 1) fs::create_directories(in_the_way);
        world.barrier();
        const std::string lost = save(checkpoint, 1);
        EXPECT(lost.empty(), "rank %d: saved as '%s'", t.model.mesh.rank, lost.c_str());
        EXPECT(!fs::exists(dir + "/step_1") && !fs::exists(dir + "/step_1.tmp-1"), "something is left");
        const std::string path = save(checkpoint, 2);
        EXPECT(path == dir + "/step_2", "rank %d: saved as '%s'", t.model.mesh.rank, path.c_str());
    });
}

// Bits that a sum of floats would not bring over.
TEST(zeros_keep_their_sign_and_nan_its_payload) {
    on_ranks(config_on({2, 2, 1, 1}, folder("bits")), [&](Tiny& t) {
        const std::vector<Tensor> tensors = whole_tensors(t.d);
        const Tensor& tensor = tensors[3];
        std::vector<real> values(tensor.param.whole(), real(-0.0));
        values[1] = real(NAN), values[2] = -real(INFINITY),
        values[3] = std::numeric_limits<real>::denorm_min();
        set_tensor(t.model.shards, tensor, values);
        const auto back = t.whole(tensor);
        EXPECT(memcmp(back.data(), values.data(), values.size() * sizeof(real)) == 0, "bits differ");
    });
}

}  // namespace PRECISION
