// Text from the model, with the cache of model/infer/decoder.h. All ranks together; every rank receives the
// tokens.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/io/text/tokenizer.h"
#include "llmc/model/infer/decoder.h"
#include "llmc/train/step/sampler.h"
#include "llmc/train/step/schedule.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline runs {

// A text in the making. The model sees the ids from `window` on; of these, `cached` are in the cache.
struct TextState {
    std::vector<int32_t> ids;
    size_t window = 0, cached = 0;
};

struct Generator {
    Decoder& decoder;
    Zero& zero;
    Mesh mesh;
    Sampler sampler;
    std::vector<Action> actions;       // of this stage, for a call of the decoder
    std::vector<int> order;            // of the blocks here, for Zero::begin_step()
    std::vector<float> logits;
    int32_t turn_end = -1;             // ends a text, besides end-of-text and EOS; -1: unused

    Generator(const Config& cfg, const Mesh& mesh, Decoder& decoder, Zero& zero);

    // Draws the next token and appends it. REQUIRES: text.ids is not empty. `stream` keys the random numbers.
    // A full context keeps its last half, and is computed again. None if a signal to any rank interrupted the
    // text. A rank that walks draws token 0.
    std::optional<int32_t> next(TextState& text, uint64_t stream);

    // Returns the text that the model writes after `ids`: up to sample.tokens tokens, or until an end token.
    // emit receives the text of each token. None: as of next().
    std::optional<std::string> run(const Tokenizer& tokenizer, std::vector<int32_t> ids, uint64_t stream,
                                   const std::function<void(std::string_view)>& emit = nullptr);

private:
    const float* next_logits(TextState& text);
    const floatX* forward(const int32_t* ids, int count, int t0);
    bool agree(int32_t* token) const;
};

}  // namespace PRECISION::runs
