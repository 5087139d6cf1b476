#include "llmc/train/generate.h"

#include "llmc/train/signals.h"

namespace PRECISION {

// Brings the cache up to the last id and returns the logits after it. ids[*window .. *window + *cached) are
// in the cache.
const float* Generator::next_logits(const std::vector<int32_t>& ids, size_t* cached, size_t* window) {
    const size_t context = size_t(decoder.d.maxT);
    if (ids.size() - *window > context) {
        *window = ids.size() - std::max<size_t>(1, context / 2);
        *cached = 0;
    }
    const floatX* row = nullptr;
    for (size_t end = ids.size() - *window; *cached < end;) {
        const size_t count = std::min(size_t(decoder.rows), end - *cached);
        row = decoder.next(zero, ids.data() + *window + *cached, int(count), int(*cached));
        *cached += count;
    }
    logits.resize(size_t(decoder.d.V));
    std::copy(row, row + decoder.d.V, logits.begin());
    return logits.data();
}

std::optional<std::string> Generator::run(std::string_view prompt, uint64_t stream,
                                          const std::function<void(std::string_view)>& emit) {
    std::vector<int32_t> ids = tokenizer.encode(prompt);
    ids.insert(ids.begin(), int32_t(tokenizer.eot()));
    size_t cached = 0, window = 0;
    std::string text;
    for (int i = 0; i < sampler.cfg.tokens; i++) {
        if (stop_asked()) return std::nullopt;
        const float* row = next_logits(ids, &cached, &window);
        ids.push_back(sampler.draw(row, decoder.d.V, stream, ids.size()));
        if (ids.back() == int32_t(tokenizer.eot())) break;
        const std::string piece = tokenizer.decode({&ids.back(), 1});
        text += piece;
        if (emit) emit(piece);
    }
    return text;
}

}  // namespace PRECISION
