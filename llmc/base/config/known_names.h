// Settings by the names that nanoGPT, llm.c, Hugging Face, Megatron and PyTorch give them.
#pragma once
#include <span>
#include <string>

// The meant key, or a sentence that says what to do instead; with both, the sentence is about the key.
struct KnownName {
    const char* names;          // separated by spaces; "wandb*" is a prefix, "-b" a flag of llm.c
    const char* key;            // null: this program has no such setting
    const char* note;           // null: the key says it all
};
std::span<const KnownName> known_names();

// The row of a name or of a path's last part, whatever its case, hyphens and underscores; null: none.
const KnownName* known_name(const std::string& path);

// What a message appends: " Did you mean optimizer.lr?", the note on a line of its own, or both.
std::string advice(const KnownName& known);
