// Checkpoints of many ranks: the file of any mesh is that of one rank, byte for byte, and any mesh loads it.
#include <filesystem>
#include <mutex>

#include "llmc/base/files.h"
#include "llmc/comm/launch.h"
#include "llmc/train/checkpoint.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

struct Where { int dp, tp, pp, zero; };

static Config config_on(const Where& at, const std::string& dir) {
    Config cfg = tiny_config();
    cfg.model = {.layers = 5, .heads = 4, .channels = 24, .context = 13, .vocab = 67, .init = "random"};
    cfg.train.batch_tokens = 12 * 13, cfg.train.micro_batch = 1;
    cfg.run.dir = dir, cfg.run.threads = 1;
    cfg.parallel.ranks = at.dp * at.tp * at.pp, cfg.parallel.tp = at.tp, cfg.parallel.pp = at.pp;
    cfg.parallel.zero = at.zero;
    return cfg;
}

static std::string folder(const char* name) {
    const std::string path = test::temporary_directory() + "/" TEST_PRECISION "_" + name;
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

static constexpr Where meshes[] = {{2, 1, 1, 0}, {3, 1, 1, 1}, {4, 1, 1, 2}, {3, 1, 1, 3}, {1, 2, 1, 0},
                                   {1, 4, 2, 0}, {2, 2, 2, 3}, {2, 1, 4, 1}};

TEST(any_mesh_writes_the_file_of_one_rank) {
    const std::string dir = folder("one");
    Tiny one(config_on({1, 1, 1, 0}, dir));
    one.shake();
    const std::string first = Checkpoint{one.cfg, one.model, ""}.save(1) + "/model.safetensors";
    const std::string expected = read_file(first);
    for (const Where& at : meshes) {
        const std::string other = folder("many");
        on_ranks(config_on(at, other), [&](Tiny& t) {
            t.shake();
            const std::string path = Checkpoint{t.cfg, t.model, ""}.save(7);
            EXPECT(path == other + "/step_7", "rank %d: saved as '%s'", t.model.mesh.rank, path.c_str());
        });
        EXPECT(read_file(other + "/step_7/model.safetensors") == expected,
               "dp %d tp %d pp %d zero %d: another file", at.dp, at.tp, at.pp, at.zero);
    }
}

TEST(any_mesh_loads_what_another_wrote) {
    const std::string dir = folder("load");
    std::vector<std::vector<real>> expected;
    on_ranks(config_on({2, 2, 2, 2}, dir), [&](Tiny& t) {
        t.shake();
        Checkpoint{t.cfg, t.model, ""}.save(3);
        for (const Tensor& tensor : whole_tensors(t.d)) {
            const auto values = t.whole(tensor);
            if (t.model.mesh.rank == 0) expected.push_back(values);
        }
    });
    for (const Where& at : meshes)
        on_ranks(config_on(at, dir), [&](Tiny& t) {
            Checkpoint{t.cfg, t.model, ""}.load(dir + "/step_3");
            size_t i = 0;
            for (const Tensor& tensor : whole_tensors(t.d))
                EXPECT(t.whole(tensor) == expected[i++], "dp %d tp %d pp %d zero %d: %s differs", at.dp,
                       at.tp, at.pp, at.zero, tensor.name.c_str());
        });
}

// Where rank 0 cannot write all ranks know, none hangs, and the next save works.
TEST(a_save_that_fails_fails_on_all_ranks) {
    const std::string dir = folder("gone");
    on_ranks(config_on({3, 1, 1, 1}, dir), [&](Tiny& t) {
        const Axis& world = t.model.mesh.world;
        if (t.model.mesh.rank == 0) fs::remove_all(dir), write_file(dir, "in the way");
        world.barrier();
        const std::string lost = Checkpoint{t.cfg, t.model, ""}.save(1);
        EXPECT(lost.empty(), "rank %d: saved as '%s'", t.model.mesh.rank, lost.c_str());
        world.barrier();
        if (t.model.mesh.rank == 0) fs::remove(dir), fs::create_directories(dir);
        const std::string path = Checkpoint{t.cfg, t.model, ""}.save(2);
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
        t.model.zero.import_tensor(tensor, 0, values.size(), values.data());
        const auto back = t.whole(tensor);
        EXPECT(memcmp(back.data(), values.data(), values.size() * sizeof(real)) == 0, "bits differ");
    });
}

}  // namespace PRECISION
