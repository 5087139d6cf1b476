// An export beside its place: written there, read back, then renamed. Until the rename the old files stay
// unchanged, also after a full disk, a kill or a failed check.
#pragma once
#include <functional>
#include <string>

#include "llmc/train/save/formats/format.h"

inline namespace formats {

struct Aside {
    const Format& format;
    std::string path;           // of the export
    bool alone;                 // a file, or a folder with no other files than an export's
    std::string folder;         // of the copy: PATH.unfinished; PATH/unfinished where it is not alone
    std::string copy;           // in that folder, of the same name
    std::function<void()> undo; // for fatal()

    Aside(const Format& format, const std::string& to);     // removes what a killed export left
    Aside(const Aside&) = delete;
    ~Aside();                                   // removes the folder
    std::string name() const { return std::string(format.prefix) + ":" + copy; }

    // Puts the copy in its place. A file, and a folder that is alone, change by one rename. Elsewhere each
    // file is renamed; config.json goes first and comes last: half an export does not look like a model.
    void put_in_place();
};

}  // namespace formats
