// Says so, before main, when this CPU lacks instructions that the program was compiled to.
#pragma once

struct BuiltFor { const char *arch, *features; };    // -march; the compiler's names, apart by spaces
extern const BuiltFor built_for;

// Writes those of `features` that has(name) denies to `lacking` (room bytes, apart by spaces); false: none.
bool lacks(const char* features, bool (*has)(const char* name), char* lacking, unsigned long room);

// Whether this CPU and its system have a feature; true for one that is not in the table.
bool cpu_has(const char* name);
