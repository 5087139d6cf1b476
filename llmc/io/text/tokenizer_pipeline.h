// Reads and writes normalizer and post-processor of tokenizer.json, and tokenizer_config.json beside it.
#pragma once
#include "llmc/base/json/json_value.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

// Reads "normalizer" and "post_processor" of the file into nfc, bos, eos, adds_bos and adds_eos. Other steps,
// which would change ids, end in CHECK_INPUT.
void read_pipeline(const Json& file, const std::string& name, Vocabulary& v);

Json json_of_normalizer(const Vocabulary& v);
Json json_of_template(const Vocabulary& v);

// tokenizer_config.json: BOS, EOS and chat template. A chat_template.jinja overrides that template. Missing
// files change nothing.
Json tokenizer_config_of(const std::string& folder);        // null: no such file
std::string special_token(const Json& config, const char* key);     // key: "eos_token"; empty: none
// The end of a text by the files in the folder: names of tokenizer_config.json, special_tokens_map.json; ids
// of generation_config.json, config.json. By the template: the last token behind the text; empty: none.
EndOfText end_named_in(const std::string& folder);
std::string end_of_template(const Json& post_processor);

// Added tokens of a folder without tokenizer.json: listed by tokenizer_config.json (added_tokens_decoder),
// else by added_tokens.json. special: those that tokenizer_config.json and special_tokens_map.json name.
FolderTokens added_tokens_in(const std::string& folder, const Json& config);
void read_tokenizer_config(const Json& config, const std::string& folder, Vocabulary& v);
Json::Members tokenizer_config(const Vocabulary& v);        // BOS, EOS, chat template of v

}  // namespace text
