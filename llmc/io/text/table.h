// A table of plain entries, initially zero, in large pages if the system has any. Hash tables of megabytes
// are read at random; small pages would cost a TLB miss per read.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "llmc/base/check.h"

inline namespace text {

template <class T> struct Table {
    T* data = nullptr;
    size_t size = 0;

    Table() = default;
    explicit Table(size_t n) : size(n) {
        void* p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK_INPUT(p != MAP_FAILED, "out of memory: a table of {} bytes", n * sizeof(T));
        if (n * sizeof(T) >= kLargePage / 4) madvise(p, bytes(), MADV_HUGEPAGE);
        const size_t skip = (kLargePage - reinterpret_cast<size_t>(p) % kLargePage) % kLargePage;
        data = reinterpret_cast<T*>(static_cast<char*>(p) + skip);
        base = p;
    }
    Table(Table&& other) noexcept { swap(other); }
    Table& operator=(Table&& other) noexcept { swap(other); return *this; }
    ~Table() { if (base) munmap(base, bytes()); }

    T& operator[](size_t i) { return data[i]; }
    const T& operator[](size_t i) const { return data[i]; }
    T* begin() const { return data; }
    T* end() const { return data + size; }
    void swap(Table& other) noexcept {
        std::swap(data, other.data);
        std::swap(size, other.size);
        std::swap(base, other.base);
    }

   private:
    static constexpr size_t kLargePage = 2 << 20;
    void* base = nullptr;
    // Whole large pages, and a page more for the alignment.
    size_t bytes() const { return (size * sizeof(T) / kLargePage + 2) * kLargePage; }
};

}  // namespace text
