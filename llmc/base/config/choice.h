// A setting with few values: an enum in code, its word in JSON, on the command line and in --help.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/numbers/activations.h"

inline namespace config {

// Such a value without its enum, for code that walks all settings: a list of words, as in "auto|cpu|cuda",
// and an index into the list.
struct Word {
    const char* words;
    uint8_t index = 0;

    // The word at `index`; empty beyond the last word.
    static std::string_view at(std::string_view words, int index) {
        for (; index > 0; index--) {
            const size_t bar = words.find('|');
            words = bar == words.npos ? std::string_view() : words.substr(bar + 1);
        }
        return words.substr(0, words.find('|'));
    }
    std::string text() const { return std::string(at(words, index)); }
    bool operator==(const Word&) const = default;
    // Sets the index to that of the word `text`. An unknown word: changes nothing, returns false.
    bool parse(std::string_view text) {
        for (int i = 0; !at(words, i).empty(); i++)
            if (at(words, i) == text) {
                index = uint8_t(i);
                return true;
            }
        return false;
    }
};

// A setting of type E. An unknown word in the constructor is fatal().
// REQUIRES: words_of(E) lists a word for each value of E, in the order of the values.
template <class E> struct Choice {
    Word word;

    Choice(E value) : word{words_of(value), uint8_t(value)} {}
    template <class Text> requires std::convertible_to<Text, std::string_view>
    Choice(const Text& text) : Choice(E()) {
        CHECK(word.parse(text), "'{}': one of {}", std::string(text), word.words);
    }
    operator E() const { return E(word.index); }
    std::string text() const { return word.text(); }
};

// Every value of E.
template <class E> std::vector<E> values_of() {
    std::vector<E> all;
    for (int i = 0; !Word::at(words_of(E()), i).empty(); i++) all.push_back(E(i));
    return all;
}

enum class RunDevice : uint8_t { Auto, Cpu, Cuda, Emulated };
enum class RunPrecision : uint8_t { Auto, Bf16, Fp32, Fp64 };
enum class ProductKind : uint8_t { Bf16, Fp8 };
enum class RowKind : uint8_t { Stream, Documents };
enum class NormKind : uint8_t { LayerNorm, RmsNorm };
enum class PositionKind : uint8_t { Learned, Rope };
enum class RopeScalingKind : uint8_t { None, Llama3, Linear, Yarn };
enum class QkNorm : uint8_t { None, Before, After };             // norm before or after the rotation
enum class SoftcapKind : uint8_t { Tanh, Sqrt };
enum class InitKind : uint8_t { Gpt2, Unit };
enum class Shortcut : uint8_t { None, X0 };
enum class ValueEmbeddings : uint8_t { None, Alternate };
enum class OptimizerKind : uint8_t { Adamw, Muon };
enum class Polynomial : uint8_t { Polar, Quintic, Cubic };       // of Muon's iterations
enum class StateDtype : uint8_t { Fp32, Bf16 };
enum class LrSchedule : uint8_t { Cosine, Linear, Wsd, Constant };
enum class TransportKind : uint8_t { Auto, Mpi, Tcp, Nccl, Threads };
enum class PipelineSchedule : uint8_t { OneFOneB, Interleaved, ZeroBubble };
enum class ReduceOrder : uint8_t { Auto, Ordered, Native };
enum class ReduceDtype : uint8_t { Fp32, Bf16 };
enum class CpKind : uint8_t { Gather, Heads };
enum class Recompute : uint8_t { None, Selective, Block };        // Selective: norms and activations
enum class Offload : uint8_t { None, Optimizer, Weights, Activations };     // each with the former

constexpr bool has_mean(NormKind k) { return k == NormKind::LayerNorm; }     // which the norm subtracts
constexpr bool has_shift(NormKind k) { return k == NormKind::LayerNorm; }    // with model.bias
constexpr bool has_chunks(PipelineSchedule s) { return s == PipelineSchedule::Interleaved; }     // per rank
constexpr bool offloads_weights(Offload o) { return o >= Offload::Weights; }
inline constexpr int kGateInputs = 12;      // channels that the gates of value embeddings read

constexpr const char* words_of(RunDevice) { return "auto|cpu|cuda|emulated"; }
constexpr const char* words_of(RunPrecision) { return "auto|bf16|fp32|fp64"; }
constexpr const char* words_of(ProductKind) { return "bf16|fp8"; }
constexpr const char* words_of(RowKind) { return "stream|documents"; }
constexpr const char* words_of(NormKind) { return "layernorm|rmsnorm"; }
constexpr const char* words_of(PositionKind) { return "learned|rope"; }
constexpr const char* words_of(RopeScalingKind) { return "none|llama3|linear|yarn"; }
constexpr const char* words_of(QkNorm) { return "none|before|after"; }
constexpr const char* words_of(SoftcapKind) { return "tanh|sqrt"; }
constexpr const char* words_of(OptimizerKind) { return "adamw|muon"; }
constexpr const char* words_of(Polynomial) { return "polar|quintic|cubic"; }
constexpr const char* words_of(InitKind) { return "gpt2|unit"; }
constexpr const char* words_of(Shortcut) { return "none|x0"; }
constexpr const char* words_of(ValueEmbeddings) { return "none|alternate"; }
constexpr const char* words_of(StateDtype) { return "fp32|bf16"; }
constexpr const char* words_of(LrSchedule) { return "cosine|linear|wsd|constant"; }
constexpr const char* words_of(TransportKind) { return "auto|mpi|tcp|nccl|threads"; }
constexpr const char* words_of(PipelineSchedule) { return "1f1b|interleaved|zb"; }
constexpr const char* words_of(ReduceOrder) { return "auto|ordered|native"; }
constexpr const char* words_of(ReduceDtype) { return "fp32|bf16"; }
constexpr const char* words_of(CpKind) { return "gather|heads"; }
constexpr const char* words_of(Recompute) { return "none|selective|block"; }
constexpr const char* words_of(Offload) { return "none|optimizer|weights|activations"; }

}  // namespace config
