// Choosing for a whole model: timed once, one text of all choices, tried before the first step.
#include "llmc/ops/tuning.h"

#include <thread>

#include "test/cuda.h"

namespace PRECISION {

static constexpr cuda::ScratchSizes kSizes = {.N = 64, .T = 32, .C = 64, .NH = 2, .D = 32, .F = 128,
                                              .chunk = 32, .Vp = 64};

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

TEST(what_is_chosen_on_one_rank_holds_on_all) {
    be_a_gpu();
    const CudaScratch lent(kSizes);
    EXPECT(!cuda::tuned(kSizes) && cuda::tuning_bytes(kSizes) > 0 && cuda::trial_bytes(kSizes) > 0);
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(kSizes)));
    cuda::tune(kSizes, memory);
    EXPECT(cuda::tuned(kSizes));
    const std::string text = cuda::choices();
    const bool tensor_cores = sizeof(floatX) == 2;
    EXPECT(count_of("NVIDIA", text) == 2 && count_of("\n\n", text) == 2, "a section of each: %s",
           text.c_str());
    EXPECT(count_of("\nattention_forward 2 32 2 32 ", text) == tensor_cores, "%s", text.c_str());
    for (const char* what : {"gelu_input ", "layernorm_forward 64 ", "layernorm_backward 64 ",
                             "classifier 64 ", "adamw_update "})
        EXPECT(count_of("\n" + std::string(what), text) == 1, "%s", text.c_str());

    std::thread([&] {                       // another rank: choices are each thread's own
        EXPECT(!cuda::tuned(kSizes));
        cuda::use_choices("");
        EXPECT(!cuda::tuned(kSizes));
        cuda::use_choices(text);
        EXPECT(cuda::tuned(kSizes) && cuda::choices() == text, "%s", cuda::choices().c_str());
    }).join();
}

TEST(choices_for_other_devices_are_kept) {
    if (kAgain) return test::skip("the test before it goes over the same code");
    be_a_gpu();
    const CudaScratch lent(kSizes);
    const OnDevice memory(std::vector<std::byte>(cuda::tuning_bytes(kSizes)));
    cuda::tune(kSizes, memory);
    const std::string own = cuda::choices();
    const std::string other = "matmul bf16, cuBLASLt 1, NVIDIA Other\nforward 1 8 8 0\n\n";
    EXPECT(cuda::choices(own) == own, "a section stands once: %s", cuda::choices(own).c_str());
    EXPECT(cuda::choices(other) == own + other, "%s", cuda::choices(other).c_str());
    EXPECT(cuda::choices(other + own) == own + other);
    cuda::use_choices(other + own);
    EXPECT(cuda::choices() == own, "another device's were taken: %s", cuda::choices().c_str());
}

TEST(what_is_chosen_is_tried) {
    be_a_gpu();
    const CudaScratch lent(kSizes);
    const OnDevice memory(std::vector<std::byte>(cuda::trial_bytes(kSizes)));
    const Fatal none = test::fatal_of([&] { cuda::try_choices(kSizes, memory); });
    EXPECT(none.code == 0, "%s", none.what());
    const auto tried = memory.host();
    EXPECT(std::any_of(tried.begin(), tried.end(), [](std::byte b) { return b != std::byte(0); }));
}

#ifdef CUDA_EMU
TEST(a_wrong_product_ends_the_program) {
    be_a_gpu();
    std::thread([&] {                       // where nothing is chosen yet: cuBLASLt's first
        const CudaScratch lent(kSizes);
        const OnDevice memory(std::vector<std::byte>(cuda::trial_bytes(kSizes)));
        emulator::settings.wrong_products = true;
        const Fatal wrong = test::fatal_of([&] { cuda::try_choices(kSizes, memory); });
        emulator::settings.wrong_products = false;
        EXPECT(wrong.code != 0 && std::string(wrong.what()).find("off by 0.") != std::string::npos, "'%s'",
               wrong.what());
    }).join();
}
#endif

}  // namespace PRECISION
