// Kernels that are compiled in several variants, which lay the same work out in another way: tiles of other
// sizes, more warps to a block, more packs to a thread.
//
// Which one is taken: what has been chosen for these sizes; else the fastest that is known of this GPU; else
// the one with the lowest floor, of several the first (verdicts.h). What failed on this GPU is out.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/progress_page.h"
#include "llmc/ops/cuda/trial.h"
#include "llmc/ops/cuda/verdicts.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Variants of attention are in attention.h. The others move the same bytes, the first is taken by default.
// Only those of the classifier add in another order.
inline constexpr const char* kLayernormForwards[] = {"8warps", "4warps"};       // a token each
inline constexpr const char* kLayernormBackwards[] = {"4rows", "2rows"};        // at once
inline constexpr const char* kClassifiers[] = {"512x7", "1024x6"};              // threads, packs each
inline constexpr const char* kAdamwUpdates[] = {"4packs", "2packs", "1pack"};   // of a thread

enum class Part {
    AttentionForward, AttentionQueries, AttentionKeys,
    LayernormForward, LayernormBackward, Classifier, AdamwUpdate
};

// What is chosen for. Sizes of attention: B, T, NH, D; of layernorm: C; of the classifier: Vp.
struct Sized {
    Part part;
    std::array<int, 4> sizes = {};
    auto operator<=>(const Sized&) const = default;
};
std::string text_of(const Sized& work);                 // "attention_keys 4 1024 12 64"

using Names = std::span<const char* const>;
int variant_of(const Sized& work, Names names);         // the index of one; negative: all have failed
int some_variant_of(const Sized& work, Names names);    // ends the program there

Verdict verdict_here(const char* part, int D, const char* variant);     // of this rank's GPU
bool has_failed(const Sized& work, const char* variant);
bool is_chosen(const Sized& work);
void choose(const Sized& work, const char* variant);

// The first line of a text of choices: they hold for one precision, library and kind of GPU.
std::string header_of(const char* choices);
// As a text, as in matmul.h: a line "layernorm_forward 768 8warps" each.
std::string variant_choices();
int use_variant_choices(const std::string& text);

struct VariantTiming {
    std::string what;               // text_of()
    const char* variant;
    float microseconds;
};
// Times f(), which takes the variant that is chosen, with each, and chooses the fastest.
template <class F>
void tune_variants(std::vector<VariantTiming>& timings, const Sized& work, Names names, int repeats, F f) {
    const char* fastest = nullptr;
    float best = 0;
    for (const char* name : names) {
        if (has_failed(work, name)) continue;
        choose(work, name);
        const float time = microseconds(f, repeats);
        beat();
        timings.push_back({text_of(work), name, time});
        if (!fastest || time < best) best = time, fastest = name;
    }
    if (fastest) choose(work, fastest);
}

// Those of layernorm, classifier and AdamW, for a model of these sizes, as in matmul.h; tried against the
// CPU's operations in FP64.
size_t streaming_tuning_bytes(const ScratchSizes& s);
std::vector<VariantTiming> streaming_tune(const ScratchSizes& s, void* memory, int repeats);
bool streaming_tuned(const ScratchSizes& s);
size_t streaming_trial_bytes(const ScratchSizes& s);
void streaming_try(const ScratchSizes& s, void* memory);

}  // namespace cuda
}  // namespace PRECISION
