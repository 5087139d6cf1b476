// Chat templates: what stands around a message to a model that was tuned to answer.
//
// A template is a program in Jinja, and this program runs none. It knows the templates of four families by
// the texts in them, in quotes or outside of Jinja's tags. Within a family, templates differ in two parts:
// default system message and start of the answer. A template with other parts is unknown.
//
//     ChatML (SmolLM2, Qwen)   <|im_start|>system\nSYSTEM<|im_end|>\n       where the template has a SYSTEM
//                              <|im_start|>user\nMESSAGE<|im_end|>\n<|im_start|>assistant\n
//     Llama 3                  BOS <|start_header_id|>user<|end_header_id|>\n\nMESSAGE<|eot_id|>
//                              <|start_header_id|>assistant<|end_header_id|>\n\n
//     Llama 3.1, 3.2, 3.3      the same, with a system message that begins with two dates, the template's
//     nanochat                 BOS <|user_start|>MESSAGE<|user_end|><|assistant_start|>
//
// A system message is a turn before the user's; in nanochat's templates that know of one, SYSTEM and an empty
// line go before MESSAGE.
// Qwen3 answers with its thoughts first, as its template has it by default.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/text/tokenizer.h"

inline namespace text {

// Why chat_of() cannot write a conversation: no template, or an unknown template; empty: no reason.
std::string no_chat(const Tokenizer& tokenizer);

struct Chat {
    std::vector<int32_t> ids;       // of the conversation up to the answer
    int32_t end;                    // the token behind an answer
};

// The texts are ordinary: tokens of the template in them are spelled out. system: in place of the template's
// default. CHECK_INPUT if no_chat() names a reason, or if the template rejects `system`.
Chat chat_of(const Tokenizer& tokenizer, std::string_view message,
             const std::optional<std::string>& system = std::nullopt);

}  // namespace text
