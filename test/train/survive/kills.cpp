// Exhaustively, as crash.cpp does for disks: rank r dies at its n-th collective or around an image, for every
// r and n of a small run. The run ends with the bytes that it has without a death. So with a second death,
// while ranks connect again, restore images, or train.
//
// KILLS=all (make test-full): every point of first deaths, of second ones one of five; else one of 199.
#include <filesystem>

#include "llmc/base/config/config.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/train/run/programs.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/save/save.h"
#include "test/agent_threads.h"
#include "test/program.h"

namespace {

namespace fs = std::filesystem;
using test::Death, test::ThreadJob;

// Every how many-th point is tried.
int64_t stride_of_kills(int64_t of_all) {
    const char* wanted = getenv("KILLS");
    return wanted && !strcmp(wanted, "all") ? of_all : 199;
}

const char* const meshes_of_kills[] = {
    R"({"parallel": {"ranks": 2, "zero": 3}})",
    R"({"parallel": {"ranks": 4, "pp": 2, "zero": 1}})",
    R"({"parallel": {"ranks": 2, "tp": 2, "zero": 0}})",
    R"({"parallel": {"ranks": 3, "zero": 2}})",                 // unequal shares
};

Config config_of_kills(const std::string& mesh, const std::string& dir) {
    test::json settings = {{"run", {{"dir", dir}, {"precision", "fp32"}, {"elastic", true}}},
                           {"model", {{"channels", 16}, {"context", 8}, {"vocab", 500}}},
                           {"train", {{"steps", 3}, {"batch_tokens", 32}, {"micro_batch", 1}}},
                           {"eval", {{"every", 2}, {"batches", 1}}},
                           {"checkpoint", {{"every", 2}, {"keep_last", 10}}}};
    settings.merge_patch(test::json::parse(mesh));
    Config cfg = load_config(test::tiny_program_config("kills", settings));
    validate(cfg);
    return cfg;
}

// Figures, and the bytes of the last checkpoint.
std::string outcome_of(const std::string& dir, int64_t steps) {
    std::string text;
    std::ifstream in(dir + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
        const test::json row = test::json::parse(line);
        for (const char* key : {"loss", "norm", "tokens"})
            if (row.contains(key) && (row["event"] == "train" || row["event"] == "val"))
                text += fmt::format("{} {} {} {}\n", row["event"].dump(), row["step"].dump(), key,
                                    row[key].dump());
    }
    std::vector<std::string> files;
    const std::string last = fmt::format("{}/step_{}", dir, steps);
    if (fs::exists(last))
        for (const auto& e : fs::directory_iterator(last)) files.push_back(e.path());
    std::sort(files.begin(), files.end());
    for (const std::string& f : files)
        if (f.ends_with(".safetensors")) text += read_file(f);
    return text;
}

int train_locked(Config cfg, const Mesh& mesh) {
    const RunLock lock(cfg.run.dir, mesh.world);
    return fp32::train(cfg, mesh);
}

std::string folder_of_kills() {
    return (fs::exists("/dev/shm") ? "/dev/shm" : test::temporary_directory()) + "/kills_" +
           std::to_string(getpid());
}

// Trains with these deaths in a new folder.
std::string train_with(ThreadJob& job, const std::string& mesh, std::vector<int64_t>* saved = nullptr) {
    const std::string dir = folder_of_kills();
    fs::remove_all(dir);
    fs::create_directories(dir);
    const Config cfg = config_of_kills(mesh, dir);
    {
        const test::Silence quiet;
        job.run(cfg, train_locked);
    }
    const std::string outcome = outcome_of(dir, cfg.train.steps);
    if (saved) *saved = saved_steps(posix_disk(), dir);
    fs::remove_all(dir);
    return outcome;
}

}  // namespace

struct Kills {
    const char* mesh;
    std::string expected;
    int64_t tried = 0, all = 0;

    // Deaths are the job's; the run has to end as without.
    void expect_no_difference(ThreadJob& job) {
        const std::string got = train_with(job, mesh);
        std::string at;
        for (const Death& d : job.deaths)
            at += fmt::format(" {}:{}:{}:{}", d.generation, d.rank, int(d.place), d.point);
        // waits differ in their number of collectives: the last points may not be reached
        EXPECT(job.code == 0 && job.died <= int(job.deaths.size()) && got == expected,
               "%s, deaths at%s: code %d, %d died, other bytes: %d, '%s'", mesh, at.c_str(), job.code,
               job.died, got != expected, job.error.c_str());
        // of the step before the one that was computed, but for ranks that had not kept it yet
        EXPECT(job.died == 0 || job.from[2] >= job.safe - 1 || job.buries,
               "%s, deaths at%s: from step %ld, not %ld", mesh, at.c_str(), long(job.from[2]),
               long(job.safe));
        tried += job.died > 0;
    }
};

TEST(a_rank_that_dies_at_any_collective_changes_no_byte) {
    int64_t tried = 0, all = 0;
    for (const char* mesh : meshes_of_kills) {
        ThreadJob calm;
        Kills kills{mesh, train_with(calm, mesh)};
        EXPECT(calm.code == 0 && kills.expected.size() > 1000, "%s: code %d '%s'", mesh, calm.code,
               calm.error.c_str());
        for (const Death& d : calm.all) {
            if (all++ % stride_of_kills(1)) continue;
            ThreadJob job;
            job.deaths = {d};
            kills.expect_no_difference(job);
        }
        tried += kills.tried;
    }
    printf("died at %ld of %ld points\n", long(tried), long(all));
}

// Before its bytes, with half of them, before and behind the word that it is there.
TEST(a_rank_that_dies_around_any_image_changes_no_byte) {
    ThreadJob calm;
    Kills kills{meshes_of_kills[0], train_with(calm, meshes_of_kills[0])};
    for (const Death& d : calm.all) {
        if (d.place != DiesAt::Image) continue;
        ThreadJob job;
        job.deaths = {d};
        kills.expect_no_difference(job);
    }
    EXPECT(kills.tried >= 20, "%ld points", long(kills.tried));
}

// The second death comes to any rank, the one that was started again included; the third to the third
// generation.
TEST(a_second_death_while_ranks_go_on_changes_no_byte) {
    int64_t tried = 0, all = 0;
    for (const char* mesh : meshes_of_kills) {
        ThreadJob calm, once;
        Kills kills{mesh, train_with(calm, mesh)};
        once.deaths = {calm.all[calm.all.size() * 2 / 3]};
        kills.expect_no_difference(once);
        for (const Death& d : once.all) {
            const bool early = d.place == DiesAt::Door || d.place == DiesAt::Fetch;
            const int64_t stride = early ? stride_of_kills(1) / 8 + 1 : stride_of_kills(5);
            if (d.generation < 2 || all++ % stride) continue;
            ThreadJob job;
            job.deaths = {once.deaths[0], d};
            if (d.point % 2) job.deaths.push_back({3, d.rank, DiesAt::Collective, d.point / 2});
            kills.expect_no_difference(job);
        }
        tried += kills.tried;
    }
    printf("died twice at %ld of %ld points\n", long(tried), long(all));
}

// Where no image of a rank is left, all go back to the last checkpoint: the ranks that live stay.
TEST(without_images_ranks_go_back_to_the_checkpoint) {
    for (const char* mesh : {meshes_of_kills[0], meshes_of_kills[1]}) {
        ThreadJob calm, job;
        Kills kills{mesh, train_with(calm, mesh)};
        job.deaths = {calm.all[calm.all.size() * 5 / 6]};
        job.buries = [](Agent& agent) { agent.images.drop_before(100); };
        kills.expect_no_difference(job);
        EXPECT(job.from[2] == -1, "%s: from images of step %ld", mesh, long(job.from[2]));
    }
}

// A rank dies in step 4 while the checkpoint of step 2 is being written: nothing of it is there.
TEST(a_checkpoint_that_was_under_way_is_written_again) {
    const char* const mesh = R"({"parallel": {"ranks": 2, "zero": 1}, "train": {"steps": 6}})";
    ThreadJob calm, job;
    std::vector<int64_t> usual, saved;
    const std::string expected = train_with(calm, mesh, &usual);
    int behind = -1;                        // collectives of rank 1 behind the image of step 3
    for (const Death& d : calm.all) {
        if (d.rank != 1) continue;
        if (d.place == DiesAt::Image && d.point == 11) behind = 0;
        if (behind >= 0 && d.place == DiesAt::Collective && behind++ == 2) job.deaths = {d};
    }
    job.restarts = [] {
        for (const auto& e : fs::directory_iterator(folder_of_kills()))
            if (e.path().filename().string().starts_with("step_")) fs::remove_all(e.path());
    };
    EXPECT(train_with(job, mesh, &saved) == expected, "other bytes: '%s'", job.error.c_str());
    EXPECT(usual.size() >= 2 && usual[0] == 2 && job.from[2] == 3 && saved[0] == 3,
           "%zu saved, then %zu, the first of step %ld; from step %ld", usual.size(), saved.size(),
           long(saved[0]), long(job.from[2]));
}

// Of generations that came to nothing nothing stays.
TEST(images_do_not_pile_up) {
    ThreadJob calm, job;
    Kills kills{meshes_of_kills[0], train_with(calm, meshes_of_kills[0])};
    job.deaths = {{1, 0, DiesAt::Image, 8}};
    for (int64_t g = 2; g <= 5; g++) job.deaths.push_back({g, int(g % 2), DiesAt::Image, 1});
    size_t most = 0;
    job.buries = [&](Agent& agent) { most = std::max(most, agent.images.size()); };
    kills.expect_no_difference(job);
    EXPECT(job.died == 5 && most <= 6, "%d died, images of %zu ranks", job.died, most);
}
