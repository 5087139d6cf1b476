// Ends the program with a message, before main, when this CPU lacks instructions of the build.
#pragma once

inline namespace host {

struct BuiltFor { const char *arch, *features; };    // -march; the compiler's names, apart by spaces
extern const BuiltFor built_for;

// Writes the `features` denied by has(name) to `lacking` (room bytes, separated by spaces). False: no feature
// is denied.
bool lacks(const char* features, bool (*has)(const char* name), char* lacking, unsigned long room);

// Whether this CPU and its system have a feature; true for a feature missing from the table.
bool cpu_has(const char* name);

}  // namespace host
