// scripts/gpu_check.sh --lease, whole: the trainer and the kernels on the emulated device, tiny models, ranks
// as threads. Its part `processes` with processes over MPI and a rank that dies.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/script_helpers.h"

using nlohmann::json;
using test::Ran;

static void link_to(const std::string& program, const std::string& bin) {
    const std::filesystem::path path = std::filesystem::absolute(program);
    std::error_code error;
    std::filesystem::create_symlink(path, bin + "/" + path.filename().string(), error);
    EXPECT(std::filesystem::exists(path), "no %s", program.c_str());
}

// What the emulated device lacks: stand-ins.
static void add_stand_ins(const std::string& bin) {
    write_program(bin + "/test_gpt", "echo '1 passed, 0 failed'\n");
    write_program(bin + "/cuda/bin/compute-sanitizer",
                  "[ \"$1\" = --version ] && exit 0\nwhile [ $# -gt 1 ]; do shift; done\n"
                  "exec \"$1\" moves_no\n");
    write_program(bin + "/python", "[ \"$1\" = -c ] && exit 0\nshift\n"
                  R"(echo "= {\"torch\": \"$*\"}")");
}

static json part_named(const json& results, const std::string& name) {
    for (const json& part : results["parts"])
        if (part["part"] == name) return part;
    return {};
}

TEST(a_lease_is_rehearsed_whole) {
    const std::string bin = made("lease_bin"), build = test::build_folder();
    for (const char* program : {"/emulated/train_gpt", "/emulated/cuda_kernels", "/dev/cuda_goldens",
                                "/dev/cuda_bench", "/test/cuda_vector"})
        link_to(build + program, bin);
    link_to("tokenize", bin);
    std::filesystem::create_directories(bin + "/cuda/bin");
    add_stand_ins(bin);
    const std::string file = made("lease") + "/results.json";
    const Ran ran = test::run("BIN=" + bin + " TINY=1 PROCESSES=threads PYTHON=" + bin + "/python " +
                              "CUDA_HOME=" + bin + "/cuda scripts/gpu_check.sh --lease --results=" + file);
    const json results = json::parse(read(file), nullptr, false);
    EXPECT(ran.code == 0 && results.is_object() && results["lease"] == true, "exit %d: %s", ran.code,
           ran.out.c_str());
    if (!results.is_object()) return;
    const std::pair<const char*, size_t> wanted[] = {
        {"ptx", 22}, {"ops", 1}, {"fixture", 2}, {"processes", 11}, {"step", 1}, {"models", 3}, {"modern", 3},
        {"kernels", 40}, {"fp8", 2}, {"sanitizer", 2}, {"torch", 1}};
    EXPECT(results["parts"].size() == std::size(wanted), "%s", results.dump().c_str());
    for (size_t i = 0; i < std::min(results["parts"].size(), std::size(wanted)); i++) {
        const json& part = results["parts"][i];
        EXPECT(part["part"] == wanted[i].first && part["results"].size() >= wanted[i].second, "%s",
               part.dump().c_str());
        EXPECT(part["status"] == (part["results"].empty() ? "skipped" : "passed"), "%s", part.dump().c_str());
    }
    for (const json& row : part_named(results, "processes")["results"])
        EXPECT(row["equal"] == true && row["missing"] == 0, "%s", row.dump().c_str());
    for (const char* model : {"gpt2_124M", "smollm2_135M", "qwen3_0.6B"})
        EXPECT(has(part_named(results, "kernels").dump(), "\"model\":\"" + std::string(model) + "\""),
               "no times of %s", model);
    EXPECT(has(part_named(results, "torch").dump(),
               "gpt2_124M:524288 smollm2_135M:262144 qwen3_0.6B:131072"));
}

// Together in nine minutes; a lease builds nothing.
TEST(a_lease_has_its_limits) {
    int sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator("scripts/gpu_check")) {
        std::stringstream lines(read(entry.path()));
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("# lease: ")) sum += atoi(line.c_str() + line.rfind(' '));
    }
    EXPECT(sum > 450 && sum <= 535, "%d s", sum);
    const std::string parts = made("lease_parts"), results = " --results=" + parts + "/results.json";
    write(parts + "/10_second.sh", "# limit: 20\n# lease: 9 20\necho \"= {\\\"limit\\\": $LIMIT}\"\n");
    write(parts + "/20_first.sh", "# lease: 1 30+\n"
          R"(echo "= {\"limit\": $LIMIT, \"lease\": $LEASE}")");
    write(parts + "/30_never.sh", "# limit: 20\nexit 1\n");
    const Ran ran = test::run("BIN=" + parts + " scripts/gpu_check.sh --lease --within=100 --parts=" + parts +
                              results);
    const json all = json::parse(read(parts + "/results.json"), nullptr, false);
    EXPECT(ran.code == 0 && all["parts"].size() == 2, "exit %d: %s", ran.code, ran.out.c_str());
    if (all["parts"].size() == 2) {
        EXPECT(all["parts"][0]["part"] == "first" && all["parts"][0]["results"][0]["lease"] == 1);
        EXPECT(all["parts"][0]["results"][0]["limit"] > 70 && all["parts"][1]["results"][0]["limit"] == 20);
    }
    const Ran none = test::run("scripts/gpu_check.sh --lease --parts=" + parts + results);
    EXPECT(none.code == 1 && has(none.err, "--lease needs a pack"), "exit %d: %s", none.code,
           none.err.c_str());
}

static Ran processes(const std::string& bin, const std::string& work, const std::string& meshes) {
    return test::run("MESHES='" + meshes + "' TINY=1 PROCESSES=mpirun BIN=" + bin + " WORK=" + work +
                     " bash scripts/gpu_check/45_processes.sh");
}

TEST(processes_lose_a_rank_and_go_on) {
    if (!has(test::run("./train_gpt --version").out, "Open MPI")) return test::skip("no MPI");
    const std::string bin = made("process_bin");
    for (const char* program : {"train_gpt", "tokenize"}) link_to(program, bin);
    const Ran ran = processes(bin, made("process_work"), "zero3 resumed elastic killed");
    EXPECT(ran.code == 0, "exit %d: %s%s", ran.code, ran.out.c_str(), ran.err.c_str());
    for (const char* row : {"{\"mesh\": \"zero3\", \"ranks\": 4", "{\"mesh\": \"resumed\", \"ranks\": 2",
                            "{\"mesh\": \"elastic\", \"ranks\": 2", "{\"lost_rank\": 1",
                            "{\"mesh\": \"continued\", \"ranks\": 2"})
        EXPECT(has(ran.out, row), "no %s in %s", row, ran.out.c_str());
    EXPECT(!has(ran.out, "\"equal\": false"), "%s", ran.out.c_str());
}

// A stand-in that trains otherwise on several ranks.
TEST(processes_that_train_otherwise_are_noticed) {
    if (!has(test::run("./train_gpt --version").out, "Open MPI")) return test::skip("no MPI");
    const std::string bin = made("wrong_bin"), trainer = std::filesystem::absolute("train_gpt");
    link_to("tokenize", bin);
    write_program(bin + "/train_gpt",
                  "exec " + trainer + " \"$@\" ${OMPI_COMM_WORLD_RANK:+--optimizer.lr=1e-2}\n");
    const Ran ran = processes(bin, made("wrong_work"), "tp");
    EXPECT(ran.code == 1 && has(ran.out, "\"equal\": false"), "exit %d: %s", ran.code, ran.out.c_str());
}

// For the trainer over NCCL, on a machine whose only NCCL is PyTorch's.
TEST(nccl_of_wheels_is_found) {
    const std::string parts = made("nccl_of_wheels"), lib = parts + "/site/nvidia/nccl/lib";
    std::filesystem::create_directories(lib);
    write(lib + "/libnccl.so.2", "");
    write(parts + "/10_path.sh", "# limit: 20\n" R"(echo "= {\"path\": \"${LD_LIBRARY_PATH:-}\"}")");
    const Ran ran = test::run("PYTHONPATH=" + parts + "/site BIN=" + parts + " scripts/gpu_check.sh --run " +
                              "--parts=" + parts + " --results=" + parts + "/results.json");
    EXPECT(ran.code == 0 && has(read(parts + "/results.json"), lib), "%s", ran.out.c_str());
}
