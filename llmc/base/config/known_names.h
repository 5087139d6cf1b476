// Names of the settings in nanoGPT, llm.c, Hugging Face, Megatron and PyTorch.
#pragma once
#include <span>
#include <string>

inline namespace config {

// What to answer to a name of another program: the key of this program, a sentence, or the key with a
// sentence about it.
struct KnownName {
    const char* names;          // separated by spaces; "wandb*" is a prefix, "-b" a flag of llm.c
    const char* key;            // null: this program has no such setting
    const char* note;           // null: the key needs no note
};
std::span<const KnownName> known_names();

// The row of a name, or of the last part of a path; ignores case, hyphens and underscores. null: no row.
const KnownName* known_name(const std::string& path);

// Text appended to a message: " Did you mean optimizer.lr?", the note on a separate line, or both.
std::string advice(const KnownName& known);

}  // namespace config
