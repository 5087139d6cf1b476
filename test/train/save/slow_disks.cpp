// A slow disk on any rank is no hang while operations finish; a stuck disk is a hang, and the message names
// the disk's rank. Tests run the real save and the real recovery over a disk with a tenth of a second for
// each read or write, or for ever.
#include <sys/mman.h>

#include <future>

#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/mpi.h"
#include "llmc/model/layout.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/saver.h"
#include "test/fake_ranks.h"
#include "test/ranks.h"

using namespace test;
using std::string;

// ---------------------------------------------------------------------------------------------------------
// the program: FAKE_SLOW=save, load or init, FAKE_STUCK: the operation that never ends, FAKE_RANK: of which
// rank

static constexpr size_t kPiece = 1 << 20, kPieces = 36;         // slow: 3.6 s, more than 1 s and the courtesy
static constexpr int kChannels = 256, kRows = kPiece / sizeof(float) / kChannels;       // of a piece of wte

static Disk slow_disk() {
    const char* stuck = getenv("FAKE_STUCK");
    auto left = std::make_shared<int>(stuck ? atoi(stuck) : 1 << 30);
    const auto take_time = [left] {
        usleep(100'000);
        if (--*left <= 0) for (;;) pause();
    };
    const Disk fast = posix_disk();
    Disk d = fast;
    d.write = [=](int file, const void* data, size_t bytes) {
        take_time();
        return fast.write(file, data, bytes);
    };
    d.read = [=](Disk::Path path, void* to, size_t bytes, uint64_t at) {
        take_time();
        return fast.read(path, to, bytes, at);
    };
    return d;
}

// The slow rank has the token embedding of a small model; all ranks share the other tensors.
static void save(const Mesh& mesh, const string& dir, const Disk& disk) {
    const bool slow = mesh.rank == atoi(getenv("FAKE_RANK"));
    static const std::vector<std::byte> data(kPiece);
    SaveJob job{.place = {.run_dir = dir, .step = 1, .attempt = 0}, .pieces = {}, .data = {},
                .total_bytes = 0, .manifest = {}, .extras = {}};
    const auto add = [&](const Tensor& t, int64_t first, int64_t rows) {
        SavedPiece p{.tensor = t.name, .array = "master", .dtype = "F32", .shape = {t.param.whole_rows},
                     .start = {first}, .extent = {rows}, .file = "", .at = 0};
        if (t.param.whole_cols > 1) {
            p.shape.push_back(t.param.whole_cols);
            p.start.push_back(0), p.extent.push_back(t.param.whole_cols);
        }
        job.data.push_back(std::span(data).first(size_t(p.bytes())));
        job.pieces.push_back(std::move(p));
    };
    Config cfg;
    cfg.model = {.layers = 1, .heads = 1, .channels = kChannels, .context = 8, .vocab = int(kPieces) * kRows,
                 .init = "random"};
    const auto tensors = whole_tensors(make_dims(cfg.model));
    for (size_t i = 0; i < tensors.size(); i++)
        if (tensors[i].name != "wte") {
            if (int(i) % mesh.world.size == mesh.rank) add(tensors[i], 0, tensors[i].param.whole_rows);
        } else if (slow)
            for (size_t k = 0; k < kPieces; k++) add(tensors[i], int64_t(k) * kRows, kRows);
    job.manifest.run = "test", job.manifest.step = 1;
    job.manifest.config = to_json(cfg), job.manifest.mesh = "{}";
    RunState state;
    state.step = 1;
    job.manifest.state = to_json(state);
    CheckpointConfig keep;
    Votes votes;
    Saver saver(mesh.world, keep, votes, disk);
    phase(Phase::Save, 1);
    saver.begin(std::move(job));
    const auto outcome = saver.finish();
    CHECK(outcome && outcome->error.empty(), "not saved: {}", outcome ? outcome->error.c_str() : "?");
}

static int saves_and_loads(const string& dir) {
    supervise();
    set_hang_timeout(atof(getenv("FAKE_TIMEOUT")));
    Config cfg = config_of(atoi(getenv("FAKE_THREADS")));
    cfg.run.dir = dir + "/run";
    make_directories(cfg.run.dir);
    const int code = run_ranks(cfg, [&](const Config& c, const Mesh& mesh) {
        const bool saves = getenv("FAKE_SLOW") == string("save");
        const bool slow = mesh.rank == atoi(getenv("FAKE_RANK"));
        save(mesh, c.run.dir, saves && slow ? slow_disk() : posix_disk());
        if (saves) return 0;
        phase(Phase::Load, 1);
        if (getenv("FAKE_SLOW") == string("init")) {
            verify_init(c.run.dir + "/step_1", mesh.world, slow_disk());
            return 0;
        }
        const auto origin = find_origin(c, mesh.world, slow_disk());
        CHECK(origin && origin->folder == c.run.dir + "/step_1", "nothing to go on from");
        return 0;
    });
    ends_on_purpose();
    return code;
}

static const bool was_program = run_where_asked(saves_and_loads);

// ---------------------------------------------------------------------------------------------------------
// the tests: all jobs at once, since they sleep

struct Slow {
    test::Kind kind;
    int ranks;
    const char* what;           // save, load
    int rank;                   // whose disk
};
static string name_of(const Slow& s) {
    static constexpr const char* kKinds[] = {"process", "mpirun", "threads"};
    return fmt::format("{} by {}, rank {} of {}", s.what, kKinds[int(s.kind)], s.rank, s.ranks);
}

static std::vector<Ended> run_jobs(const std::vector<Slow>& jobs, const string& more) {
    std::vector<std::future<Ended>> running;
    for (const Slow& s : jobs) {
        const string asked = fmt::format("FAKE_SLOW={} FAKE_RANK={} ", s.what, s.rank) + more;
        const test::Job job = {.kind = s.kind, .ranks = s.ranks, .timeout = 1, .more = asked};
        running.push_back(std::async(std::launch::async, run_job, job));
    }
    std::vector<Ended> ended;
    for (auto& r : running) ended.push_back(r.get());
    return ended;
}

static std::vector<Slow> jobs_here() {
    std::vector<Slow> jobs = {{test::Kind::Process, 1, "save", 0}, {test::Kind::Process, 1, "load", 0},
                              {test::Kind::Threads, 2, "save", 1}, {test::Kind::Threads, 2, "init", 0}};
    if (mpirun_is_there() && !mpi_library().empty()) {
        jobs.push_back({test::Kind::Mpirun, 2, "save", 1});
        jobs.push_back({test::Kind::Mpirun, 2, "load", 0});
    }
    if (!getenv("TEST_FULL")) return jobs;
    jobs.push_back({test::Kind::Threads, 3, "load", 0});
    jobs.push_back({test::Kind::Threads, 3, "save", 0});
    if (mpirun_is_there() && !mpi_library().empty()) jobs.push_back({test::Kind::Mpirun, 3, "save", 0});
    return jobs;
}

TEST(a_slow_disk_is_no_hang) {
    const std::vector<Slow> jobs = jobs_here();
    const std::vector<Ended> ended = run_jobs(jobs, "");
    for (size_t i = 0; i < jobs.size(); i++)
        EXPECT(ended[i].ran.code == 0 && ended[i].ran.err.empty() && ended[i].left.empty(),
               "%s: exit code %d, '%s'", name_of(jobs[i]).c_str(), ended[i].ran.code,
               ended[i].ran.err.c_str());
}

TEST(a_disk_that_answers_no_more_is_a_hang_of_its_rank) {
    const std::vector<Slow> jobs = jobs_here();
    const std::vector<Ended> ended = run_jobs(jobs, "FAKE_STUCK=8");
    for (size_t i = 0; i < jobs.size(); i++) {
        const Ran& ran = ended[i].ran;
        const string rank = fmt::format("error: rank {}", jobs[i].rank);
        const char* const where = jobs[i].what == string("save") ? "while saving at step 1"
                                                                 : "while loading (step 1)";
        EXPECT(ran.code == kExitHang && lines_of(ran.err, rank, "hangs: no progress for 1.") == 1 &&
                   lines_of(ran.err, rank, where) == 1 && lines_of(ran.err, "rank", "step") == 1 &&
                   ended[i].left.empty(),
               "%s: exit code %d, '%s'", name_of(jobs[i]).c_str(), ran.code, ran.err.c_str());
    }
}

// ---------------------------------------------------------------------------------------------------------
// what no clock is needed for

// 1 GiB of addresses, which nothing reads: the queue is not run.
TEST(no_single_sync_takes_a_large_file) {
    constexpr size_t kBytes = size_t(1) << 30;
    void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED, "no addresses");
    const Disk disk = posix_disk();
    const SavedPiece piece{.tensor = "w", .array = "m", .dtype = "F32", .shape = {int64_t(kBytes / 4)},
                           .start = {0}, .extent = {int64_t(kBytes / 4)}, .file = "", .at = 0};
    const SavePlace place{.run_dir = "/nowhere", .step = 1, .attempt = 1};
    const auto bytes = std::span(static_cast<const std::byte*>(memory), kBytes);
    const DiskQueue q = save_share(disk, place, 0, {piece}, {bytes}, 8 << 20);
    int unsynced = 0, most = 0;
    for (const auto& o : q.operations) {
        unsynced = o.what.starts_with("cannot sync") ? 0 : unsynced + o.what.starts_with("cannot write");
        most = std::max(most, unsynced);
    }
    EXPECT(q.operations.size() > 128 && most <= 34, "%d writes of 8 MiB and no sync", most);
    munmap(memory, kBytes);
}

// A checkpoint of 4,096 ranks: each has a row of the token embedding, and rank 0 the other tensors.
struct DescribedDisk {
    static constexpr int kFiles = 4096;
    static constexpr uint64_t kBytes = 1 << 16;         // of a file
    string manifest;
    int looks = 0, reads = 0;                           // of one rank

    DescribedDisk() {
        Config cfg;
        cfg.model = {.layers = 1, .heads = 1, .channels = 16, .context = 8, .vocab = kFiles,
                     .init = "random"};
        RunState state;
        state.step = 1;
        Manifest m{.run = "test", .step = 1, .config = to_json(cfg), .mesh = "{}", .state = to_json(state),
                   .files = {}, .pieces = {}};
        const auto name = [](int64_t rank) { return fmt::format("rank_{:05}.safetensors", rank); };
        for (int r = 0; r < kFiles; r++) m.files.push_back({name(r), kBytes, {0}});
        uint64_t at = 0;
        for (const Tensor& t : whole_tensors(make_dims(cfg.model))) {
            const int64_t rows = t.param.whole_rows, cols = t.param.whole_cols;
            const int64_t cut = t.name == "wte" ? 1 : rows;
            for (int64_t row = 0; row < rows; row += cut) {
                SavedPiece p{.tensor = t.name, .array = "master", .dtype = "F32", .shape = {rows},
                             .start = {row}, .extent = {cut}, .file = name(row), .at = cut == 1 ? 0 : at};
                if (cols > 1) p.shape.push_back(cols), p.start.push_back(0), p.extent.push_back(cols);
                if (cut > 1) at += p.bytes();
                m.pieces.push_back(p);
            }
            at = std::max(at, uint64_t(64));            // the row in rank 0's file
        }
        manifest = to_json(m);
    }
    Disk disk() {
        Disk d;
        d.size = [this](Disk::Path path, uint64_t* bytes) {
            looks++;
            *bytes = path.ends_with(kManifest) ? manifest.size() : kBytes;
            return 0;
        };
        d.read = [this](Disk::Path, void* to, size_t bytes, uint64_t offset) {
            reads++;
            return ssize_t(manifest.copy(static_cast<char*>(to), bytes, size_t(offset)));
        };
        return d;
    }
};

TEST(only_rank_0_looks_at_every_file_of_a_checkpoint) {
    const DescribedDisk saved;
    DescribedDisk seen[3] = {saved, saved, saved};
    Manifest opened[3];
    run_threads(config_of(3), [&](const Config&, const Mesh& mesh) {
        DescribedDisk& own = seen[mesh.rank];
        opened[mesh.rank] = open_checkpoint("step_1", mesh.world, own.disk()).manifest;
        return 0;
    });
    EXPECT(seen[0].looks >= saved.kFiles, "rank 0 looks at %d files", seen[0].looks);
    for (int r = 1; r < 3; r++) {
        EXPECT(seen[r].looks + seen[r].reads == 0, "rank %d: %d sizes, %d reads", r, seen[r].looks,
               seen[r].reads);
        opened[r].files = opened[0].files;
        EXPECT(opened[r].pieces.size() > saved.kFiles && to_json(opened[r]) == to_json(opened[0]),
               "rank %d reads another manifest", r);
    }
    DescribedDisk head = saved;                         // what each process looks at before ranks meet
    const Verified v = verify_checkpoint(head.disk(), "step_1", Check::Head);
    EXPECT(v.manifest && v.manifest->config == opened[0].config && head.looks <= 1, "'%s', %d sizes",
           v.problem.c_str(), head.looks);
    head.manifest[10] ^= 1;
    EXPECT(!verify_checkpoint(head.disk(), "step_1", Check::Head).manifest, "a damaged head");
}
