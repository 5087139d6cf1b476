// Tuning for a whole model: every candidate is timed once, one text holds all choices, a comparison precedes
// the first step.
#include "llmc/ops/backend_tuning.h"

#include <set>
#include <thread>

#include "llmc/ops/cuda/tuning/workload.h"
#include "llmc/train/run/run_memory.h"
#include "test/cuda.h"

namespace PRECISION {

// A step of a block of two heads of 32 channels, with 64 tokens.
static const Walk& a_step() {
    static const Walk walk = [] {
        Config cfg;
        cfg.model = {.layers = 1, .heads = 2, .channels = 64, .context = 32, .vocab = 64, .init = "random"};
        cfg.train = {.steps = 1, .batch_tokens = 64, .micro_batch = 2, .max_skips = 0};
        const Target gpu{.backend = Target::Cuda, .threads = 1};
        const Context before = context;
        context.target = &gpu;
        Walk of_step = walk_of_run(cfg, Mesh(), {.micro_batch = 2, .micros = 0});
        context = before;
        return of_step;
    }();
    return walk;
}
static constexpr bool kTensorCores = sizeof(floatX) == 2;

// The emulated device has times of a CPU, which nothing is chosen by unless it is taken for a GPU.
static void be_a_gpu() {
#ifdef CUDA_EMU
    emulator::settings.name = "NVIDIA Test";
#endif
}

static int count_of(const std::string& words, const std::string& text) {
    int count = 0;
    for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) count++;
    return count;
}

// f() on a thread of its own: a rank without choices.
template <class F> static void on_another_rank(F f) { std::thread(f).join(); }

TEST(one_rank_chooses_for_all) {
    be_a_gpu();
    const CudaScratch lent;
    EXPECT(!cuda::tuned(a_step()) && cuda::tuning_bytes(a_step()) > 0);
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(a_step())));
    size_t candidates = 0, beats = 0;
    for (const cuda::Task& task : cuda::tasks_of(a_step())) candidates += cuda::candidates_of(task).size();
    cuda::tune(a_step(), memory, [&] { beats++; });
    EXPECT(cuda::tuned(a_step()) && beats == candidates, "%zu heartbeats, %zu candidates", beats, candidates);
    const std::string text = cuda::choices();
    EXPECT(count_of("NVIDIA", text) == 1 && count_of("\n\n", text) == 1, "one section: %s", text.c_str());
    EXPECT(count_of("\n", text) == 2 + 12 + 3 + 3 * kTensorCores, "a line for each task: %s", text.c_str());
    for (const char* what : {"attention_forward 2 32 2 32 ", "attention_queries 2 32 2 32 ",
                             "attention_keys 2 32 2 32 "})
        EXPECT(count_of("\n" + std::string(what), text) == kTensorCores, "%s", text.c_str());
    EXPECT(count_of("\ngelu_input 64 256 64 ", text) == 1 && count_of("\nweight 64 64 128 ", text) == 1, "%s",
           text.c_str());
    on_another_rank([&] {
        EXPECT(!cuda::tuned(a_step()));
        cuda::use_choices("");
        EXPECT(!cuda::tuned(a_step()));
        cuda::use_choices(text);
        EXPECT(cuda::tuned(a_step()) && cuda::choices() == text, "%s", cuda::choices().c_str());
    });
}

// Muon's products are batches of one shape: tasks of their own, which a text names.
TEST(batches_are_tasks) {
    be_a_gpu();
    const CudaScratch lent;
    const Walk walk = walk_of({Target::Cuda, 1}, [] {
        cuda::gram(nullptr, nullptr, nullptr, 32, 64, 3);
        cuda::gram(nullptr, nullptr, nullptr, 64, 32, 3);
        cuda::muon_product(nullptr, nullptr, nullptr, 32, 64, 3);
        cuda::muon_product(nullptr, nullptr, nullptr, 32, 64, 1);
    });
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(walk)));
    on_another_rank([&] {
        const CudaScratch own;
        cuda::tune(walk, memory, [] {});
        const std::string text = cuda::choices();
        for (const char* what : {"\nforward_batch 32 64 32 3 ", "\nweight_batch 64 32 32 3 ",
                                 "\ninput_batch 32 64 32 3 ", "\ninput 32 64 32 "})
            EXPECT(count_of(what, text) == 1, "%s in %s", what, text.c_str());
        on_another_rank([&] {
            const CudaScratch another;
            EXPECT(!cuda::tuned(walk));
            cuda::use_choices(text);
            EXPECT(cuda::tuned(walk) && cuda::choices() == text, "%s", cuda::choices().c_str());
            cuda::check_choices(walk, memory);
        });
    });
}

TEST(every_candidate_is_timed_and_the_fastest_chosen) {
    if (kAgain) return test::skip("the test before it goes over the same code");
    be_a_gpu();
    const CudaScratch lent;
    for (const cuda::Task& task : cuda::tasks_of(a_step())) {
        const OnDevice memory(std::vector<std::byte>(cuda::workload_bytes(task)));
        const auto candidates = cuda::candidates_of(task);
        const auto timings = cuda::time_candidates(task, memory, 1);
        EXPECT(timings.size() == candidates.size(), "%s", text_of(task).c_str());
        std::set<std::string> kernels;
        int plain = 0;
        for (size_t i = 0; i < std::min(timings.size(), candidates.size()); i++) {
            EXPECT(timings[i].microseconds > 0 && timings[i].candidate == candidates[i]);
            kernels.insert(candidates[i].kernel), plain += candidates[i].algorithm == kPlainCublas;
        }
        const bool attention = task.op >= cuda::Op::AttentionForward;
        const bool epilogue = task.op == cuda::Op::BiasForward || task.op == cuda::Op::GeluForward ||
                              task.op == cuda::Op::GeluInput || task.op == cuda::Op::WeightBias;
#ifndef CUDA_EMU
        if (epilogue && !kernels.contains("fused")) {
            test::skip("cuBLASLt has no epilogue for %s here", text_of(task).c_str());
            continue;
        }
#endif
        const bool weight = task.op == cuda::Op::Weight || task.op == cuda::Op::WeightBias;
        const size_t ours = kTensorCores && cuda_device().arch == 90 && !weight ? 2 : 0;
        EXPECT(attention ? kernels.size() == 2 * kTensorCores && plain == 0
                         : kernels.size() == (epilogue ? 2 : 1) + ours && plain == 1,
               "%s: %zu kernels, %d of plain cuBLAS", text_of(task).c_str(), kernels.size(), plain);
        EXPECT(cuda::tuning_bytes(a_step()) >= memory.bytes());
    }
}

TEST(choices_for_other_devices_are_kept) {
    if (kAgain) return test::skip("the test before it goes over the same code");
    be_a_gpu();
    const CudaScratch lent;
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(a_step())));
    cuda::tune(a_step(), memory, beat);
    const std::string own = cuda::choices();
    const std::string other = "BF16, cuBLASLt 1, NVIDIA Other\nattention_keys 1 8 8 32 64x64\n\n";
    EXPECT(cuda::choices(own) == own, "a section stands once: %s", cuda::choices(own).c_str());
    EXPECT(cuda::choices(other) == own + other, "%s", cuda::choices(other).c_str());
    EXPECT(cuda::choices(other + own) == own + other);
    cuda::use_choices(other + own);
    EXPECT(cuda::choices() == own, "another device's were taken: %s", cuda::choices().c_str());
}

TEST(damaged_lines_choose_nothing) {
    be_a_gpu();
    const std::string header = cuda::choices().substr(0, cuda::choices().find('\n') + 1);
    const cuda::Task task = {cuda::Op::AttentionKeys, {1, 8, 8, 32}};
    on_another_rank([&] {
        for (const char* line :
             {"attention_keys 1 8 8 32", "attention_keys 1 8 x 32 64x64", "keys 1 8 8 32 64x64",
              "forward 8 8 8 unfused 1 2 3 4 5 6 7", "forward 8 8 8", "\t"}) {
            cuda::use_choices(header + line + "\n\n");
            EXPECT(cuda::choices() == header + "\n", "'%s' was taken: %s", line, cuda::choices().c_str());
        }
        cuda::use_choices(header + "keys\nattention_keys 1 8 8 32 64x64\n");      // no empty line, no matter
        EXPECT(cuda::chosen_for(task) && cuda::chosen_for(task)->kernel == "64x64");
    });
}

TEST(choices_are_compared_with_the_simplest_way) {
    be_a_gpu();
    const CudaScratch lent;
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(a_step())));
    const Fatal none = test::fatal_of([&] { cuda::check_choices(a_step(), memory); });
    EXPECT(none.code == 0, "%s", none.what());
}

#ifdef CUDA_EMU
TEST(a_wrong_product_ends_the_program) {
    be_a_gpu();
    on_another_rank([&] {                       // without choices: cuBLASLt's first
        const CudaScratch lent;
        const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(a_step())));
        emulator::settings.wrong_products = true;
        const Fatal wrong = test::fatal_of([&] { cuda::check_choices(a_step(), memory); });
        emulator::settings.wrong_products = false;
        EXPECT(wrong.code != 0 && std::string(wrong.what()).find("off by 0.") != std::string::npos, "'%s'",
               wrong.what());
    });
}
#endif

}  // namespace PRECISION
