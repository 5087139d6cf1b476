// Text from the model, with the cache of model/decoder.h.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/io/tokenizer.h"
#include "llmc/model/decoder.h"
#include "llmc/train/sampler.h"
#include "llmc/train/zero.h"

namespace PRECISION {

struct Generator {
    Decoder& decoder;
    Zero& zero;
    const Tokenizer& tokenizer;
    Sampler sampler;
    std::vector<float> logits;

    Generator(const Config& cfg, Decoder& decoder, Zero& zero, const Tokenizer& tokenizer)
        : decoder(decoder), zero(zero), tokenizer(tokenizer),
          sampler{cfg.sample, uint64_t(cfg.run.seed), {}} {}

    // The continuation of a prompt, which starts a document, up to sample.tokens tokens or the end of the
    // document. `stream` keys the random numbers. emit sees the text as it comes. Past the model's context
    // the window moves on by half. Nothing where stop_asked() cut it short.
    std::optional<std::string> run(std::string_view prompt, uint64_t stream,
                                   const std::function<void(std::string_view)>& emit = nullptr);

private:
    const float* next_logits(const std::vector<int32_t>& ids, size_t* cached, size_t* window);
};

}  // namespace PRECISION
