// What stands around the model in a tokenizer.json: the normalizer before it, the template of a text after
// it.
#pragma once
#include "llmc/base/json_value.h"
#include "llmc/io/text/vocabulary.h"

// Reads "normalizer" and "post_processor" of the file into nfc, bos, eos and adds_bos. Other steps,
// which would change ids, end in CHECK_INPUT.
void read_pipeline(const Json& file, const char* name, Vocabulary& v);

Json json_of_normalizer(const Vocabulary& v);
Json json_of_template(const Vocabulary& v);

// What stands beside tokenizer.json in a folder: BOS, EOS and the chat template in tokenizer_config.json, or
// the template in chat_template.jinja, which goes before. Files that are not there say nothing.
Json tokenizer_config_of(const std::string& folder);        // null: not there
std::string special_token(const Json& config, const char* key);     // of "eos_token"; empty: not said
void read_tokenizer_config(const Json& config, const std::string& folder, Vocabulary& v);
Json::Members tokenizer_config(const Vocabulary& v);        // what v has of these
