// Room train/save/formats: reads and writes models of other programs: Hugging Face, GGUF, llm.c.
// Called by train/save for model.init and by train/run for --export.
// The room knows whole tensors in FP32. It knows no rank and no mesh.
//
// Models of other programs by name, such as "hf:DIR": the table of formats, and its interface to train/.
#pragma once
#include <string>
#include <vector>

#include "llmc/train/save/formats/format.h"

inline namespace formats {

const Format* format_of(const std::string& name);               // of "PREFIX:PATH"; null: no format's
std::string path_of(const std::string& name);                   // behind the colon
std::string list_of_formats(const char* between);               // "hf:DIR, gguf:FILE, ..."
std::string help_on_formats();                                  // lines of --help
std::string meant_import(const std::string& path);              // model.init that was meant; empty: unknown

// Imports. is_foreign(): model.init names a model of a format of the table. open_foreign(): opens the model
// from = "PREFIX:PATH".
bool is_foreign(const std::string& init);
ForeignModel open_foreign(const std::string& from, Opens opens = Opens::Model);
void check_head(const ForeignModel& m, const Tensor& wte);      // refuses a head that is not the embedding

// Exports, to = "PREFIX:PATH".
void check_export_format(const std::string& to);                // refuses other names
void check_export_kind(const std::string& to, const ModelConfig& model);    // refuses a model of no kind
std::string exports_of(const ModelConfig& model);       // "hf, gguf", or "none, because ..."
// Whether files are there that the export replaces. Without `overwrite` these have to be an export of this
// program.
bool replaces_export(const std::string& to, const ModelConfig& model, bool overwrite);
// Writes a copy beside the place, calls verify("FORMAT:PATH" of the copy), and puts the copy in its place.
void export_to(const OwnModel& m, const std::string& to,
               const std::function<void(const std::string& copy)>& verify = nullptr);
std::vector<std::string> files_of_export(const std::string& to);     // every file that an export may write

}  // namespace formats
