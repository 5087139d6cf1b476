// A single allocation, planned in advance.
//
// Users add named entries: arena.of(Purpose::Weights).add("weights", &params, count), or without a purpose
// arena.add("staging", &staging, count). allocate() then makes one allocation and fills in all pointers. The
// printed plan is the same list, byte for byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/check.h"

inline namespace any_backend {

enum class Purpose : uint8_t { Weights, Gradients, Optimizer, Activations, Other };

struct ArenaOf;

struct Arena {
    struct Row { std::string name; Purpose purpose; size_t bytes; };    // all entries of a name and purpose
    struct Region { std::string name; size_t offset, bytes; std::function<void(std::byte*)> place; };

    // Memory for `count` elements; *pointer is set by allocate(). Regions are aligned to 64 bytes.
    template <class T> void add(const std::string& name, T** pointer, size_t count,
                                Purpose purpose = Purpose::Other) {
        reserve(name, count * sizeof(T), [pointer](std::byte* p) { *pointer = reinterpret_cast<T*>(p); },
                purpose);
    }
    void reserve(const std::string& name, size_t bytes, std::function<void(std::byte*)> place,
                 Purpose purpose = Purpose::Other);
    ArenaOf of(Purpose purpose);

    size_t bytes() const { return total; }              // whole pages
    std::vector<Row> plan() const;                      // in the order of first mention; sums to bytes()

    using Allocate = void* (*)(size_t);
    using Free = void (*)(void*, size_t);
    void allocate(Allocate allocate, Free free);        // memory is zero; call once
    // In place of allocate(), for a walk: sets all pointers to unmapped addresses; a read or a write ends in
    // SIGSEGV.
    void describe();

    // For tests of memory errors: unused bytes behind each entry. red_zone_made receives these bytes, and the
    // bytes left by rounding.
    static inline size_t red_zone = 0;
    static inline void (*red_zone_made)(void* p, size_t bytes) = nullptr;

    Arena() = default;
    Arena(const Arena&) = delete;
    ~Arena();

private:
    std::vector<Region> regions;
    std::vector<Row> rows;
    size_t used = 0, total = 0;
    void* memory = nullptr;
    Free release = nullptr;
};

// Adds entries for one purpose.
struct ArenaOf {
    Arena& arena;
    Purpose purpose;

    template <class T> void add(const std::string& name, T** pointer, size_t count) const {
        arena.add(name, pointer, count, purpose);
    }
    void reserve(const std::string& name, size_t bytes, std::function<void(std::byte*)> place) const {
        arena.reserve(name, bytes, std::move(place), purpose);
    }
    ArenaOf of(Purpose other) const { return {arena, other}; }
};
inline ArenaOf Arena::of(Purpose purpose) { return {*this, purpose}; }

}  // namespace any_backend
