// Text from the model, with the cache of model/decoder.h. All ranks together; every rank receives the text.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/io/text/tokenizer.h"
#include "llmc/model/decoder.h"
#include "llmc/train/step/sampler.h"
#include "llmc/train/step/schedule.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

// The first ids of a text: BOS where the tokenizer adds BOS, then the prompt. If empty: end-of-text, the
// beginning of a document.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);

struct Generator {
    Decoder& decoder;
    Zero& zero;
    Mesh mesh;
    const Tokenizer& tokenizer;
    Sampler sampler;
    std::vector<Action> actions;       // of this stage for a piece of the sequence
    std::vector<int> order;            // of the blocks here
    std::vector<float> logits;
    int32_t turn_end = -1;             // ends a text, besides end-of-text and EOS; -1: unused

    Generator(const Config& cfg, const Mesh& mesh, Decoder& decoder, Zero& zero, const Tokenizer& tokenizer);

    // Returns the text that the model writes after `ids`: up to sample.tokens tokens, or until an end token.
    // REQUIRES: ids is not empty. `stream` keys the random numbers. emit receives the text piece by piece.
    // Past the model's context the window moves by half. None if a signal to any rank interrupted the text.
    std::optional<std::string> run(std::vector<int32_t> ids, uint64_t stream,
                                   const std::function<void(std::string_view)>& emit = nullptr);

private:
    const float* next_logits(const std::vector<int32_t>& ids, size_t* cached, size_t* window);
    const floatX* forward(const int32_t* ids, int count, int t0);
    bool agree(int32_t* token) const;
};

}  // namespace PRECISION
